"""A model that is in memory, with what it needs to read text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

__all__ = ["LoadedModel"]


@dataclass(frozen=True)
class LoadedModel:
    """A model, its tokenizer (the subwords of both languages for a translator, None for a Vision Transformer) and, for
    a fine-tuned model, the task with its head. Unpacks to model and tokenizer, as `regard.load` returns them."""

    name: str
    model: nn.Module
    tokenizer: Any
    fine_tuned: Any = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model, self.tokenizer))
