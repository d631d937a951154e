"""The `Decoder` protocol: read a batch, take one token per row, and reorder rows. Does not choose tokens.

This is the only module of inference that imports `regard.nn.fast`. Without that folder, `fast_decoder` returns the
plain decoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import InputError
from regard.models.family import family_name
from regard.nn.masks import Padded
from regard.nn.stack import Stack

try:
    from regard.engine.graph_decoder import cuda_graph_decoder as cuda_graph_decoder
    from regard.nn.fast.fused_step import FusedStep, supports_fused_step
    from regard.nn.fast.int8_argmax import Int8ArgmaxFilter
    from regard.nn.fast.packed_linear import PackedLinear
except ImportError:
    AVAILABLE = False

    def cuda_graph_decoder(*arguments: Any, **options: Any) -> None:  # type: ignore[misc]
        """Return None: there is no decoder that records steps for a GPU."""
else:
    AVAILABLE = True


PACK_STEPS = 16  # from this number of steps on, weights are packed at once
ROUND_STEPS = 160  # from this number of steps on, an output layer is rounded to int8


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


@dataclass(frozen=True)
class TokenConstraints:
    """The token that a search must choose first, and those that it must not choose."""

    forced_first: int | None = None
    suppressed: tuple[int, ...] = ()

    @classmethod
    def of(cls, model: object) -> TokenConstraints:
        return cls(getattr(model, "forced_first", None), getattr(model, "suppressed", ()))

    def force(self, logits: Tensor, step: int) -> Tensor:
        """The logits (B, V) of a step, counted from 1; only the forced token has a probability where there is one."""
        if self.forced_first is None or step > 1:
            return logits
        forced = torch.full_like(logits, -torch.inf)
        forced[:, self.forced_first] = 0.0
        return forced

    def suppress(self, logits: Tensor) -> Tensor:
        """The logits (B, V) with -inf for the suppressed tokens."""
        if not self.suppressed:
            return logits
        return logits.index_fill(-1, torch.tensor(self.suppressed, device=logits.device), -torch.inf)


class _PackedWeights:
    """Weights in the layouts that are fast on a CPU."""

    def __init__(self, *, patience: int = 0) -> None:
        self.packing = PackedLinear(patience=patience)
        self.argmax_filter = Int8ArgmaxFilter(self.packing.linear)


_packed: ContextVar[_PackedWeights | None] = ContextVar("_packed", default=None)


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
    argmax_only = argmax_only and (shared is not None or steps >= ROUND_STEPS)
    return _FastDecoder(model, weights, argmax_only=argmax_only)


class _FastDecoder(Generic[StateT]):
    """A decoder with packed weights that takes fused steps, unless it has no stack or its modules are hooked."""

    def __init__(self, model: Decoder[StateT], weights: _PackedWeights | None, *, argmax_only: bool) -> None:
        self.model: Any = model
        self.packing: AbstractContextManager[object] = weights.packing if weights else nullcontext()
        self.output = weights.argmax_filter if weights and argmax_only else self.packing
        self.linear = weights.packing.linear if weights else F.linear
        self.fused_step: FusedStep | None = None
        self.decided = False

    def start(self, ids: Tensor, layout: Padded | None = None, /) -> tuple[Tensor, Any]:
        logits, state = self.model.start(ids, layout)
        return logits, state

    def step(self, tokens: Tensor, state: Any, /) -> tuple[Tensor, Any]:
        if not self.decided:
            self.decided = True
            stack = getattr(self.model, "decoder", None)
            if isinstance(stack, Stack) and supports_fused_step(stack):
                self.fused_step = FusedStep(stack, self.linear)
        if self.fused_step is None:
            with self.packing:
                logits, state = self.model.step(tokens, state)
                return logits, state
        hidden = self.fused_step(self.model.embed_next(tokens, state)[:, 0], state)
        return self.logits(hidden), state

    def extend(self, tokens: Tensor, state: Any) -> Tensor:
        """`CausalDecoder.extend`."""
        with self.packing:
            hidden: Tensor = self.model.extend(tokens, state)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        with self.output:
            logits: Tensor = self.model.logits(hidden)
        return logits
