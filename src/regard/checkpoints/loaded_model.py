"""A model that is in memory, with what it needs to read text."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import nn

from regard.errors import InputError
from regard.models.family import family_name
from regard.text import Tokenizer

__all__ = ["LoadedModel", "require_tokenizer"]

CACHED = 4  # results that are kept for a model

T = TypeVar("T")


@dataclass(frozen=True)
class LoadedModel:
    """A model, its tokenizer (the subwords of both languages for a translator, None for a Vision Transformer) and, for
    a fine-tuned model, the task with its head. Unpacks to model and tokenizer, as `regard.load` returns them."""

    name: str
    model: nn.Module
    tokenizer: Any
    fine_tuned: Any = None
    cache: dict[Hashable, Any] | None = None  # results of slow analyses, kept by a server

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model, self.tokenizer))

    def cached(self, key: Hashable, compute: Callable[[], T]) -> T:
        """`compute()`, or its earlier result for the same key if the model has a cache."""
        if self.cache is None:
            return compute()
        result: T = self.cache.pop(key) if key in self.cache else compute()
        for old in list(self.cache)[: max(0, len(self.cache) + 1 - CACHED)]:
            self.cache.pop(old, None)
        self.cache[key] = result
        return result


def require_tokenizer(model: nn.Module, tokenizer: Tokenizer | None) -> Tokenizer:
    """The tokenizer; InputError if the model came without one."""
    if tokenizer is None:
        raise InputError(
            f"this {family_name(model)} model came without a tokenizer, so it reads no text; "
            "expected tokenizer.json or vocab.txt in its folder"
        )
    return tokenizer
