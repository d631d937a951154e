"""Helpers that run analyses to completion."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any, TypeVar

from regard.checkpoints.loaded_model import LoadedModel
from regard.inference.load_model import load_model

__all__ = ["as_loaded", "finish"]

T = TypeVar("T")


def as_loaded(model: str | os.PathLike[str] | tuple[Any, Any]) -> LoadedModel:
    """Load a model on the CPU from its folder, or wrap the result of `regard.load`."""
    return LoadedModel("model", *model) if isinstance(model, tuple) else load_model(model)


def finish(run: Generator[Any, None, T], events: list[Any] | None = None) -> T:
    """Return the result of a generator and append its events to a list."""
    while True:
        try:
            event = next(run)
        except StopIteration as end:
            result: T = end.value
            return result
        if events is not None:
            events.append(event)
