"""What a model must offer to be decoded: read a batch, say one token a row, and let rows change places.

Gpt, T5, Transformer and Seq2Seq offer it. Knows no way to choose a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.models.family import family_name
from regard.nn import Padded

__all__ = ["Decoder", "ReorderableState", "StateT", "as_decoder", "eval_mode", "inference_mode"]


class ReorderableState(Protocol):
    """Where the decoding of a batch stands."""

    def reorder(self, index: Tensor) -> None:
        """Row i continues what row index[i] began; rows that are not named are gone."""


StateT = TypeVar("StateT", bound=ReorderableState)


class Decoder(Protocol[StateT]):
    """A model that says one token after the other."""

    def start(self, ids: Tensor, layout: Padded | None = None, /) -> tuple[Tensor, StateT]:
        """Read prompts or sources (B, T), padded on the right: the logits (B, V) of what follows, and the state."""

    def step(self, tokens: Tensor, state: StateT, /) -> tuple[Tensor, StateT]:
        """Say one more token in each row, tokens (B,): the logits (B, V) of what follows, and the state."""


def as_decoder(model: nn.Module) -> Decoder[ReorderableState]:
    """The model as a speaker; one that only reads, as BERT does, is refused."""
    if not (hasattr(model, "start") and hasattr(model, "step")):
        raise InputError(
            f"this {family_name(model)} model reads texts and writes none; "
            "take a GPT-2 or a T5 to write with, or a Transformer or a Seq2Seq to translate with"
        )
    return cast("Decoder[ReorderableState]", model)


@contextmanager
def inference_mode(model: Decoder[StateT]) -> Iterator[None]:
    """No dropout and no gradients inside."""
    with eval_mode(model), torch.inference_mode():
        yield


@contextmanager
def eval_mode(model: Decoder[StateT]) -> Iterator[None]:
    """No dropout inside, then the model goes on as it was. Gradients stay on: a generator may not switch them off."""
    parts = list(model.modules()) if isinstance(model, nn.Module) else []
    training = [part for part in parts if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
