"""The same model, quicker at saying one token after the other.

Knows which models can take their steps as straight code, and what makes products of few rows quick on a processor.
Knows no way to choose a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Generic, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.inference.generation.decoder import Decoder, StateT
from regard.models import Gpt
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn import DecoderState, Padded
from regard.nn.fast.fused_step import FusedStep, supports_fused_step
from regard.nn.fast.int8_argmax import Int8ArgmaxFilter
from regard.nn.fast.packed_linear import PackedLinear

__all__ = ["fast_decoder", "reuse_packed_weights"]

MANY = 16  # steps, for which matrices are packed at once
LONG = 160  # steps, for which an output layer is rounded


class _Layouts:
    """What a processor lays out anew."""

    def __init__(self, *, patience: int = 0) -> None:
        self.packing = PackedLinear(patience=patience)
        self.screening = Int8ArgmaxFilter(self.packing.linear)


_kept: ContextVar[_Layouts | None] = ContextVar("_kept", default=None)


@contextmanager
def reuse_packed_weights() -> Iterator[None]:
    """What one decoding lays out anew on a processor, the next ones inside use again.

    Weights must stay as they are meanwhile; those that are used with a few rows take their room twice.
    """
    token = _kept.set(_kept.get() or _Layouts())
    try:
        yield
    finally:
        _kept.reset(token)


def fast_decoder(
    model: Decoder[StateT], device: torch.device, *, steps: int, argmax_only: bool = False
) -> Decoder[StateT]:
    """The same speaker for one decoding of up to so many steps: the same logits, up to rounding.

    `highest`: only each row's highest logit is wanted, and others may be -inf. Weights must stay as they are meanwhile.
    """
    layouts, kept = None, _kept.get()
    if device.type == "cpu":
        layouts = kept or _Layouts(patience=0 if steps >= MANY else 1)
    if isinstance(model, Gpt | EncoderDecoder):
        argmax_only = argmax_only and (kept is not None or steps >= LONG)
        return cast("Decoder[StateT]", _Stepping(model, layouts, highest=argmax_only))
    return _Packed(model, layouts.packing) if layouts else model


class _Packed(Generic[StateT]):
    def __init__(self, model: Decoder[StateT], packing: AbstractContextManager[object]) -> None:
        self.model, self.packing = model, packing

    def start(self, ids: Tensor, layout: Padded | None = None, /) -> tuple[Tensor, StateT]:
        return self.model.start(ids, layout)

    def step(self, tokens: Tensor, state: StateT, /) -> tuple[Tensor, StateT]:
        with self.packing:
            return self.model.step(tokens, state)


class _Stepping:
    """A decoder whose steps are straight code, unless somebody watches."""

    def __init__(self, model: Gpt | EncoderDecoder, layouts: _Layouts | None, *, highest: bool) -> None:
        self.model = model
        self.packing: AbstractContextManager[object] = layouts.packing if layouts else nullcontext()
        self.output = layouts.screening if layouts and highest else self.packing
        self.linear = layouts.packing.linear if layouts else F.linear
        self.straight: FusedStep | None = None
        self.decided = False

    def start(self, ids: Tensor, layout: Padded | None = None, /) -> tuple[Tensor, DecoderState]:
        return self.model.start(ids, layout)

    def step(self, tokens: Tensor, state: DecoderState, /) -> tuple[Tensor, DecoderState]:
        if not self.decided:
            self.decided = True
            self.straight = (
                FusedStep(self.model.decoder, self.linear) if supports_fused_step(self.model.decoder) else None
            )
        if self.straight is None:
            with self.packing:
                return self.model.step(tokens, state)
        hidden = self.straight(self.model.embed_next(tokens, state)[:, 0], state)
        with self.output:
            return self.model.logits(hidden), state
