"""Faster decoding steps: the only module of inference that imports `regard.nn.fast`.

Every function works without that folder and then returns the plain decoder. Does not choose tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.inference.generation.decoder import Decoder, StateT
from regard.models import Gpt
from regard.nn import DecoderState, Padded
from regard.nn.encoder_decoder import EncoderDecoder

if TYPE_CHECKING:
    from regard.nn.fast.cuda_graphs import CudaGraphDecoder

try:
    from regard.nn.fast.cuda_graphs import cuda_graph_decoder as _cuda_graph_decoder
    from regard.nn.fast.fused_step import FusedStep, supports_fused_step
    from regard.nn.fast.int8_argmax import Int8ArgmaxFilter
    from regard.nn.fast.packed_linear import PackedLinear
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = True

PACK_STEPS = 16  # from this number of steps on, weights are packed at once
ROUND_STEPS = 160  # from this number of steps on, an output layer is rounded to int8


class _PackedWeights:
    """Weights in the layouts that are fast on a CPU."""

    def __init__(self, *, patience: int = 0) -> None:
        self.packing = PackedLinear(patience=patience)
        self.argmax_filter = Int8ArgmaxFilter(self.packing.linear)


_packed: ContextVar[_PackedWeights | None] = ContextVar("_packed", default=None)


def cuda_graph_decoder(
    model: Decoder[StateT], state: DecoderState, *, max_new_tokens: int, choose: Any, kind: object
) -> CudaGraphDecoder | None:
    """Recorded steps for a GPT on a GPU; None where they do not apply."""
    if not AVAILABLE:
        return None
    return _cuda_graph_decoder(model, state, max_tokens=max_new_tokens, choose=choose, kind=kind)


@contextmanager
def reuse_packed_weights() -> Iterator[None]:
    """Decodings inside this context share the weights that are packed for a CPU.

    Weights must not change meanwhile; those used with few rows take twice their memory.
    """
    if not AVAILABLE:
        yield
        return
    token = _packed.set(_packed.get() or _PackedWeights())
    try:
        yield
    finally:
        _packed.reset(token)


def fast_decoder(
    model: Decoder[StateT], device: torch.device, *, steps: int, argmax_only: bool = False
) -> Decoder[StateT]:
    """The same decoder for one decoding of up to `steps` steps, with the same logits up to rounding.

    `argmax_only`: only the highest logit of each row is needed; others may be -inf. Weights must not change meanwhile.
    """
    if not AVAILABLE:
        return model
    weights, shared = None, _packed.get()
    if device.type == "cpu":
        weights = shared or _PackedWeights(patience=0 if steps >= PACK_STEPS else 1)
    if isinstance(model, Gpt | EncoderDecoder):
        argmax_only = argmax_only and (shared is not None or steps >= ROUND_STEPS)
        return cast("Decoder[StateT]", _FusedDecoder(model, weights, argmax_only=argmax_only))
    return _PackedDecoder(model, weights.packing) if weights else model


class _PackedDecoder(Generic[StateT]):
    def __init__(self, model: Decoder[StateT], packing: AbstractContextManager[object]) -> None:
        self.model, self.packing = model, packing

    def start(self, ids: Tensor, layout: Padded | None = None, /) -> tuple[Tensor, StateT]:
        return self.model.start(ids, layout)

    def step(self, tokens: Tensor, state: StateT, /) -> tuple[Tensor, StateT]:
        with self.packing:
            return self.model.step(tokens, state)


class _FusedDecoder:
    """A decoder that takes fused steps unless its modules are hooked."""

    def __init__(self, model: Gpt | EncoderDecoder, weights: _PackedWeights | None, *, argmax_only: bool) -> None:
        self.model = model
        self.packing: AbstractContextManager[object] = weights.packing if weights else nullcontext()
        self.output = weights.argmax_filter if weights and argmax_only else self.packing
        self.linear = weights.packing.linear if weights else F.linear
        self.fused_step: FusedStep | None = None
        self.decided = False

    def start(self, ids: Tensor, layout: Padded | None = None, /) -> tuple[Tensor, DecoderState]:
        return self.model.start(ids, layout)

    def step(self, tokens: Tensor, state: DecoderState, /) -> tuple[Tensor, DecoderState]:
        if not self.decided:
            self.decided = True
            self.fused_step = (
                FusedStep(self.model.decoder, self.linear) if supports_fused_step(self.model.decoder) else None
            )
        if self.fused_step is None:
            with self.packing:
                return self.model.step(tokens, state)
        hidden = self.fused_step(self.model.embed_next(tokens, state)[:, 0], state)
        with self.output:
            return self.model.logits(hidden), state
