"""A model made ready to be asked: it has the head that is needed, its tokenizer is there, and dropout is off.

Knows which families have which heads, and how to ask for the words behind masks. Knows nothing of blanks or texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.data.batch import collate
from regard.errors import InputError
from regard.known import DEFAULT_MODEL, one_of
from regard.models import Bert
from regard.models.bert import MaskedLMHead
from regard.nn import Packed
from regard.text import Tokenizer

__all__ = [
    "BATCH_TOKENS",
    "MaskedLM",
    "describe_model",
    "evaluation_mode",
    "family_name",
    "in_groups",
    "require_tokenizer",
]

BATCH_TOKENS = {"cpu": 2048, "cuda": 16384}  # tokens a batch: of many, a row as wide as the vocabulary is made

Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class MaskedLM:
    """A model that predicts masked tokens, with its head, its tokenizer and the id of the mask."""

    model: Bert
    head: MaskedLMHead
    tokenizer: Tokenizer
    mask: int

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Tokenizer | None, *, doing: str) -> MaskedLM:
        """Refuse a model that cannot; `doing` opens the error: "filling in blanks"."""
        tokens = require_tokenizer(model, tokenizer)
        head = model.masked if isinstance(model, Bert) else None
        if not isinstance(model, Bert) or head is None:
            bare = (
                ": it was tuned for a task, which has a head of its own, or its folder holds the encoder alone; take "
                f"the pretrained model it was made from, or another with that head, such as {DEFAULT_MODEL}"
            )
            other = f"; take a BERT, DistilBERT or RoBERTa that was pretrained on masked words, such as {DEFAULT_MODEL}"
            raise InputError(
                f"{doing} needs a masked-word head, and this {family_name(model)} model has none"
                f"{bare if isinstance(model, Bert) else other}"
            )
        if tokens.mask is None:
            raise InputError(f"{doing} needs a mask token, and this {family_name(model)} model's tokenizer has none")
        return cls(model, head, tokens, tokens.mask)

    @property
    def limit(self) -> int:
        """The most tokens a text may have, special ones included."""
        return self.model.config.max_position_embeddings

    @property
    def budget(self) -> int:
        return BATCH_TOKENS[self.head.bias.device.type]

    def logits(self, rows: Sequence[Sequence[int]], places: Sequence[tuple[int, int]]) -> Tensor:
        """The logits (n, V) at `places`, each a row and a token in it; all rows are one packed batch."""
        batch = collate(rows).to(self.head.bias.device)
        assert isinstance(batch.layout, Packed)
        starts = batch.layout.starts.tolist()
        wanted = torch.tensor([starts[row] + token for row, token in places], device=batch.ids.device)
        found: Tensor = self.head(self.model(batch.ids, batch.layout, rows=wanted))
        return found.float()


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """No dropout and no gradients inside; a model that is being trained goes on as it was."""
    before = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for part, training in before:
            part.training = training


def require_tokenizer(model: nn.Module, tokenizer: Tokenizer | None) -> Tokenizer:
    if tokenizer is None:
        raise InputError(
            f"this {family_name(model)} model came without a tokenizer, so it reads no text; "
            "expected tokenizer.json or vocab.txt in its folder"
        )
    return tokenizer


def family_name(model: nn.Module) -> str:
    """The family's name, as config.json and payloads have it."""
    return str(getattr(getattr(model, "config", None), "family", type(model).__name__))


def describe_model(model: nn.Module) -> str:
    """How errors call a model: "a BERT", "an ELMo"."""
    return one_of(family_name(model))


def in_groups(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The items in order, `size` of them at a time, or one where that is 0."""
    step = max(1, size)
    return (items[start : start + step] for start in range(0, len(items), step))
