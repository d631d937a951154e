"""The `Decoder` protocol: read a batch, take one token per row, and reorder rows.

Gpt, T5, Transformer and Seq2Seq implement it. Does not choose tokens.
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


class ReorderableState(Protocol):
    """The state of decoding a batch."""

    def reorder(self, index: Tensor) -> None:
        """Row i continues row index[i]; rows that are not named are dropped."""


StateT = TypeVar("StateT", bound=ReorderableState)


class Decoder(Protocol[StateT]):
    """A model that predicts one token after the other."""

    def start(self, ids: Tensor, layout: Padded | None = None, /) -> tuple[Tensor, StateT]:
        """Read prompts or sources (B, T), padded on the right: the logits (B, V) of the next token, and the state."""

    def step(self, tokens: Tensor, state: StateT, /) -> tuple[Tensor, StateT]:
        """Append one token to each row, tokens (B,): the logits (B, V) of the next token, and the state."""


def as_decoder(model: nn.Module) -> Decoder[ReorderableState]:
    """The model as a decoder; InputError for an encoder such as BERT."""
    if not (hasattr(model, "start") and hasattr(model, "step")):
        raise InputError(
            f"this {family_name(model)} model cannot generate text; "
            "use a GPT-2 or a T5, or a Transformer or a Seq2Seq to translate"
        )
    return cast("Decoder[ReorderableState]", model)


@contextmanager
def inference_mode(model: Decoder[StateT]) -> Iterator[None]:
    """Evaluation mode without gradients."""
    with eval_mode(model), torch.inference_mode():
        yield


@contextmanager
def eval_mode(model: Decoder[StateT]) -> Iterator[None]:
    """Evaluation mode, restored at the end. Gradients stay on: a generator must not disable them for its caller."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
