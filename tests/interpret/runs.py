"""Run analyses to their end in tests."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any, TypeVar

from regard.checkpoints.loaded_model import LoadedModel
from regard.inference.load_model import load_model

__all__ = ["as_loaded", "finish"]

T = TypeVar("T")


def as_loaded(model: str | os.PathLike[str] | tuple[Any, Any]) -> LoadedModel:
    """A model on the CPU: from its folder, or from what `regard.load` returns."""
    return LoadedModel("model", *model) if isinstance(model, tuple) else load_model(model)


def finish(run: Generator[Any, None, T], events: list[Any] | None = None) -> T:
    """The result of a generator; its events are appended to a list."""
    while True:
        try:
            event = next(run)
        except StopIteration as end:
            result: T = end.value
            return result
        if events is not None:
            events.append(event)
