"""Many tokens in a row on a GPU, without waiting for any of them: recorded steps over a store of a fixed size.

A step with all its kernels is recorded once as a CUDA graph and then played again; the choice of the token is part of
it, and the processor looks at the tokens a burst at a time. Steps see as much of the store as is used, rounded up, so
there is one recording for each of a few spans; a single row has kernels of its own, which find out how much is used.
Knows GPT. Knows no texts, and not how a token is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Literal, get_args
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import check_choice
from regard.models import Gpt
from regard.nn import DecoderState, Padded
from regard.nn.fast.fused_step import FusedStep, supports_fused_step
from regard.nn.fast.single_row import SingleRowKernels, supports_single_row
from regard.nn.fast.static_cache import StaticCache

__all__ = ["CudaGraphDecoder", "SelectTokens", "cuda_graph_decoder", "cuda_graph_mode"]

Mode = Literal["off", "graphs", "plain"]
SelectTokens = Callable[
    [Tensor, Tensor], tuple[Tensor, Tensor]
]  # logits (B, V) and chances (B,) to tokens and numbers (B,)

BURST = 16  # steps
WORTH = 64  # steps from which on recording pays
SHORTEST = 128  # places of a span

_turn = Lock()  # a recording bears no other beside it, so threads take turns, a burst each
_mode: ContextVar[Mode] = ContextVar("mode", default="graphs")


@contextmanager
def cuda_graph_mode(mode: Mode) -> Iterator[None]:
    """How GPTs on a GPU say tokens inside, where 64 or more are asked for.

    "graphs", which needs no asking for, plays recorded steps. "off": one step at a time. "plain": bursts on any device
    and unrecorded, to try them.
    """
    check_choice("mode", mode, get_args(Mode))
    before = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(before)


class CudaGraphDecoder:
    """Steps of `rows` rows of one model, up to `room` tokens each, prompts included."""

    def __init__(self, model: Gpt, *, rows: int, room: int, choose: SelectTokens, mode: Mode) -> None:
        # The model itself is not kept: it may go, and these steps with it.
        weight, config = model.embedding.tokens.weight, model.config
        self.embedding, self.choose, self.mode = model.embedding, choose, mode
        alone = rows == 1 and supports_single_row(model.decoder, model.embedding)
        self.alone = SingleRowKernels(model.decoder) if alone else None
        self.straight, self.last = FusedStep(model.decoder), config.max_position_embeddings - 1
        self.weights = _places(model)
        device, heads = weight.device, config.num_attention_heads
        shape = {"rows": rows, "heads": heads, "room": room, "width": config.hidden_size // heads}
        self.store = StaticCache(config.num_hidden_layers, **shape, dtype=weight.dtype, device=device)
        self.tokens = torch.zeros(rows, dtype=torch.long, device=device)
        self.number = torch.zeros(1, dtype=torch.long, device=device)  # of the step in its burst
        self.chances = torch.zeros(BURST, rows, dtype=torch.double, device=device)
        self.said = torch.zeros(BURST, rows, dtype=torch.long, device=device)
        self.numbers = torch.zeros(BURST, rows, dtype=torch.float, device=device)
        self.draws = False  # whether the choice needs chances
        self.steps: dict[int, Callable[[], None]] = {}
        self.busy = False  # it was lent: store and tokens belong to somebody who has not ended

    def generate(
        self,
        state: DecoderState,
        tokens: Tensor,
        *,
        count: int,
        chances: Callable[[int], Sequence[float]] | None = None,
    ) -> Iterator[tuple[list[int], list[float]]]:
        """Say the tokens (B,) behind what `state` holds, then the chosen ones: `count` tokens and numbers of each row.

        `chances(i)` are the random numbers (B,) of the i-th of them, from 0.
        """
        try:
            yield from self._said(state, tokens, count, chances)
        finally:
            self.busy = False

    def _said(
        self, state: DecoderState, tokens: Tensor, count: int, chances: Callable[[int], Sequence[float]] | None
    ) -> Iterator[tuple[list[int], list[float]]]:
        held, draws = state.cache.length, chances is not None
        if draws != self.draws:  # never where the kind is the same
            self.draws = draws
            self.steps.clear()
        with _static():
            self.store.load(state.cache, state.lengths)
            self.tokens.copy_(tokens)
        for first in range(0, count, BURST):
            steps = range(first, min(first + BURST, count))
            with _turn, _static():
                if chances is not None:
                    numbers = torch.tensor([chances(step) for step in steps], dtype=torch.double)
                    self.chances[: len(steps)].copy_(numbers)
                self.number.zero_()
                for step in steps:
                    self._step(held + step + 1)()
                said, told = self.said[: len(steps)].tolist(), self.numbers[: len(steps)].tolist()
            yield from zip(said, told, strict=True)

    def _step(self, length: int) -> Callable[[], None]:
        """A step that sees at least `length` places."""
        span = SHORTEST if self.alone is None else self.store.room
        while span < length:
            span *= 2
        span = min(span, self.store.room)
        if span not in self.steps:
            self.steps[span] = self._made(span)
        return self.steps[span]

    def _made(self, span: int) -> Callable[[], None]:
        state = DecoderState(self.store.cache(span), self.store.keep(span))

        def step() -> None:
            chances = self.chances.index_select(0, self.number) if self.draws else self.chances
            tokens, numbers = self.choose(self._logits(state, span), chances[0])
            self.said.index_copy_(0, self.number, tokens[None])
            self.numbers.index_copy_(0, self.number, numbers.float()[None])
            self.tokens.copy_(tokens)
            self.store.places.add_(1)
            self.number.add_(1)

        return step if self.mode == "plain" else self._recorded(step)

    def _logits(self, state: DecoderState, span: int) -> Tensor:
        """Trial steps stand at a place that no text has, and there may be no position for it."""
        weight = self.embedding.tokens.weight
        if self.alone is not None:
            return self.alone.logits(self.alone.embed(self.embedding, self.tokens, self.store.places), state, weight)
        state.mask = self.store.keep(span)
        places = self.store.places.clamp(max=self.last)
        x = self.embedding(self.tokens[:, None], Padded(), start=places[:, None])[:, 0]
        return F.linear(self.straight(x, state), weight)

    def _recorded(self, step: Callable[[], None]) -> Callable[[], None]:
        """The step as one CUDA graph. It is tried a few times before, where nobody looks, as graphs want it."""
        changed = self.tokens, self.number, self.said, self.numbers, self.store.places
        before = [tensor.clone() for tensor in changed]
        stream = torch.cuda.Stream(self.tokens.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.tokens.device))
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.store.places.fill_(self.store.room)
                self.number.zero_()
                step()
        torch.cuda.current_stream(self.tokens.device).wait_stream(stream)
        torch.cuda.synchronize(self.tokens.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.tokens.device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
        for tensor, old in zip(changed, before, strict=True):
            tensor.copy_(old)
        return graph.replay


_kept: WeakKeyDictionary[Gpt, tuple[object, CudaGraphDecoder]] = WeakKeyDictionary()  # the last of each model


def cuda_graph_decoder(
    model: object, state: object, *, max_tokens: int, choose: SelectTokens, kind: object
) -> CudaGraphDecoder | None:
    """Bursts for what `state` begins, or None where single steps serve as well. Equal `kind`s choose alike."""
    mode = _mode.get()
    if mode == "off" or not isinstance(model, Gpt) or not isinstance(state, DecoderState):
        return None
    if mode != "plain" and not (state.mask.is_cuda and max_tokens >= WORTH):
        return None
    if state.cache.length + max_tokens - 1 > model.config.max_position_embeddings:  # single steps say where it ends
        return None
    with torch.no_grad():
        if not supports_fused_step(model.decoder):
            return None
    rows, needed = len(state.mask), state.cache.length + max_tokens
    room = -(-needed // SHORTEST) * SHORTEST
    key = rows, room, kind, mode
    old, found = _kept.get(model, (None, None))
    if found is None or old != key or found.busy or found.weights != _places(model):
        _kept.pop(model, None)
        with _static():
            found = CudaGraphDecoder(model, rows=rows, room=room, choose=choose, mode=mode)
        _kept[model] = key, found
    found.busy = True
    return found


def _places(model: Gpt) -> list[tuple[int, torch.dtype]]:
    """Where the weights lie: recorded steps read them there."""
    return [(parameter.data_ptr(), parameter.dtype) for parameter in model.parameters()]


@contextmanager
def _static() -> Iterator[None]:
    """Neither gradients nor inference mode, whose tensors may not be written to outside of it."""
    with torch.inference_mode(False), torch.no_grad():
        yield
