"""`LoadedModel`: a model in memory with its tokenizer."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from regard.engine.precision import decoding_copy
from regard.errors import InputError
from regard.models.family import family_name
from regard.text import Tokenizer
from regard.text.reading import ReadingCount

CACHE_SIZE = 4  # results per model

T = TypeVar("T")


@dataclass(frozen=True)
class LoadedModel:
    """A model, its tokenizer (those of both languages for a translator, None for a Vision Transformer) and, for a
    fine-tuned model, the task with its head, for a translator all of it. Unpacks to model and tokenizer, as returned by
    `regard.load`."""

    name: str
    model: nn.Module
    tokenizer: Any
    fine_tuned: Any = None
    translator: Any = None
    folder: Path | None = None  # where it was read from
    changeable: bool = False  # passed in by a caller, who may have changed its weights
    devices: tuple[torch.device, ...] = ()  # of the machine on which a bulk job may load it, too
    cache: dict[Hashable, Any] | None = None  # results of slow analyses, used by the server

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model, self.tokenizer))

    def in_precision(self, precision: str) -> LoadedModel:
        """The model in a precision for decoding: fp32, this one, or int8, a copy with 8-bit weights."""
        model = decoding_copy(self.model, precision)
        return self if model is self.model else replace(self, model=model, changeable=False)

    def counting(self, reading: ReadingCount) -> LoadedModel:
        """The same model, whose tokenizers report the texts that they encode."""

        def count(tokenizer: Any) -> Any:
            if isinstance(tokenizer, Tokenizer):
                return tokenizer.counting(reading)
            if tokenizer is None:
                return None
            source = tokenizer.source.counting(reading)  # a translator
            return replace(tokenizer, source=source, target=source if tokenizer.joint else tokenizer.target)

        tokenizer, fine_tuned, translator = count(self.tokenizer), self.fine_tuned, self.translator
        if fine_tuned is not None and fine_tuned.tokenizer is not None:
            fine_tuned = copy.copy(fine_tuned)
            object.__setattr__(fine_tuned, "tokenizer", fine_tuned.tokenizer.counting(reading))
        if translator is not None:
            translator = replace(translator, subwords=count(translator.subwords))
        return replace(self, tokenizer=tokenizer, fine_tuned=fine_tuned, translator=translator)

    def cached(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return `compute()`, or its cached result for the same key if the model has a cache."""
        if self.cache is None:
            return compute()
        result: T = self.cache.pop(key) if key in self.cache else compute()
        for old in list(self.cache)[: max(0, len(self.cache) + 1 - CACHE_SIZE)]:
            self.cache.pop(old, None)
        self.cache[key] = result
        return result


def require_tokenizer(model: nn.Module, tokenizer: Tokenizer | None) -> Tokenizer:
    """Return the tokenizer; raise InputError if the model has none."""
    if tokenizer is None:
        raise InputError(
            f"this {family_name(model)} model has no tokenizer, so it cannot read text; "
            "expected tokenizer.json or vocab.txt in its folder"
        )
    return tokenizer
