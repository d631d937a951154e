"""Generation of many tokens on a GPU from recorded CUDA graphs, over a cache of fixed size.

A decoding step, with the choice of its token, is captured once as a CUDA graph and replayed; the CPU reads the tokens
one burst at a time. A step attends to the used part of the cache, rounded up, so there is one graph for each of a few
spans. A single row uses kernels of its own. The model needs an embedding, a causal stack and tied output weights.

Buys 63,027 instead of 8,950 tokens/s (single steps of transformers) for 64 rows of GPT-2 small in bf16 on an H200
(benchmarks/results/generate-cuda.json).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, Literal, get_args
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import check_choice
from regard.nn import DecoderState, LearnedPositions, Padded, Stack, TextEmbedding
from regard.nn.fast.fused_step import FusedStep, supports_fused_step
from regard.nn.fast.single_row import SingleRowKernels, supports_single_row
from regard.nn.fast.static_cache import StaticCache

__all__ = ["CudaGraphDecoder", "SelectTokens", "cuda_graph_decoder", "cuda_graph_mode"]

Mode = Literal["off", "graphs", "plain"]
# logits (B, V) and uniform random numbers (B,) -> tokens (B,) and their scores (B,)
SelectTokens = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

BURST = 16  # steps
MIN_STEPS = 64  # capturing a graph does not pay for fewer
MIN_SPAN = 128  # positions

_lock = Lock()  # only one thread may capture at a time; threads alternate by bursts
_mode: ContextVar[Mode] = ContextVar("mode", default="graphs")


@contextmanager
def cuda_graph_mode(mode: Mode) -> Iterator[None]:
    """Select how causal models generate 64 or more tokens inside the block.

    "graphs" (default) replays captured steps on a GPU, "off" runs one step at a time, and "plain" runs bursts without
    capturing, on any device, for tests.
    """
    check_choice("mode", mode, get_args(Mode))
    before = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(before)


class CudaGraphDecoder:
    """Decoding steps for `rows` rows of one model, up to `room` tokens each, prompts included."""

    def __init__(self, model: Any, *, rows: int, room: int, choose: SelectTokens, mode: Mode) -> None:
        # No reference to the model: this object lives in a weak dictionary keyed by it.
        weight, config = model.embedding.tokens.weight, model.config
        self.embedding, self.choose, self.mode = model.embedding, choose, mode
        alone = rows == 1 and supports_single_row(model.decoder, model.embedding)
        self.alone = SingleRowKernels(model.decoder) if alone else None
        self.fused_step, self.last = FusedStep(model.decoder), config.max_position_embeddings - 1
        self.weights = _weight_addresses(model)
        device, heads = weight.device, config.num_attention_heads
        shape = {"rows": rows, "heads": heads, "room": room, "width": config.hidden_size // heads}
        self.store = StaticCache(config.num_hidden_layers, **shape, dtype=weight.dtype, device=device)
        self.tokens = torch.zeros(rows, dtype=torch.long, device=device)
        self.number = torch.zeros(1, dtype=torch.long, device=device)  # of the step in the burst
        self.uniforms = torch.zeros(BURST, rows, dtype=torch.double, device=device)
        self.generated = torch.zeros(BURST, rows, dtype=torch.long, device=device)
        self.scores = torch.zeros(BURST, rows, dtype=torch.float, device=device)
        self.samples = False  # whether the selection needs random numbers
        self.steps: dict[int, Callable[[], None]] = {}
        self.busy = False  # in use by a generation that has not ended

    def generate(
        self,
        state: DecoderState,
        tokens: Tensor,
        *,
        count: int,
        chances: Callable[[int], Sequence[float]] | None = None,
    ) -> Iterator[tuple[list[int], list[float]]]:
        """Append the tokens (B,) to `state`, then the selected ones; yield `count` tokens and scores of each row.

        `chances(i)` gives the uniform random numbers (B,) for the i-th token, from 0.
        """
        try:
            yield from self._bursts(state, tokens, count, chances)
        finally:
            self.busy = False

    def _bursts(
        self, state: DecoderState, tokens: Tensor, count: int, chances: Callable[[int], Sequence[float]] | None
    ) -> Iterator[tuple[list[int], list[float]]]:
        held, draws = state.cache.length, chances is not None
        if draws != self.samples:
            self.samples = draws
            self.steps.clear()
        with _static():
            self.store.load(state.cache, state.lengths)
            self.tokens.copy_(tokens)
        for first in range(0, count, BURST):
            steps = range(first, min(first + BURST, count))
            with _lock, _static():
                if chances is not None:
                    numbers = torch.tensor([chances(step) for step in steps], dtype=torch.double)
                    self.uniforms[: len(steps)].copy_(numbers)
                self.number.zero_()
                for step in steps:
                    self._step(held + step + 1)()
                tokens_now, scores = self.generated[: len(steps)].tolist(), self.scores[: len(steps)].tolist()
            yield from zip(tokens_now, scores, strict=True)

    def _step(self, length: int) -> Callable[[], None]:
        """A step that attends to at least `length` positions."""
        span = MIN_SPAN if self.alone is None else self.store.room
        while span < length:
            span *= 2
        span = min(span, self.store.room)
        if span not in self.steps:
            self.steps[span] = self._new_step(span)
        return self.steps[span]

    def _new_step(self, span: int) -> Callable[[], None]:
        state = DecoderState(self.store.cache(span), self.store.keep(span))

        def step() -> None:
            chances = self.uniforms.index_select(0, self.number) if self.samples else self.uniforms
            tokens, numbers = self.choose(self._logits(state, span), chances[0])
            self.generated.index_copy_(0, self.number, tokens[None])
            self.scores.index_copy_(0, self.number, numbers.float()[None])
            self.tokens.copy_(tokens)
            self.store.places.add_(1)
            self.number.add_(1)

        return step if self.mode == "plain" else self._captured(step)

    def _logits(self, state: DecoderState, span: int) -> Tensor:
        """Warm-up steps write behind the last position, so positions are clamped."""
        weight = self.embedding.tokens.weight
        if self.alone is not None:
            return self.alone.logits(self.alone.embed(self.embedding, self.tokens, self.store.places), state, weight)
        state.mask = self.store.keep(span)
        places = self.store.places.clamp(max=self.last)
        x = self.embedding(self.tokens[:, None], Padded(), start=places[:, None])[:, 0]
        return F.linear(self.fused_step(x, state), weight)

    def _captured(self, step: Callable[[], None]) -> Callable[[], None]:
        """The step as a CUDA graph, after the warm-up steps that capturing needs."""
        changed = self.tokens, self.number, self.generated, self.scores, self.store.places
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


_kept: WeakKeyDictionary[Any, tuple[object, CudaGraphDecoder]] = WeakKeyDictionary()  # the latest of each model


def cuda_graph_decoder(
    model: Any, state: object, *, max_tokens: int, choose: SelectTokens, kind: object
) -> CudaGraphDecoder | None:
    """A decoder that continues `state`, or None if single steps serve. Equal `kind`s select tokens alike."""
    mode = _mode.get()
    if mode == "off" or not isinstance(state, DecoderState) or not _is_supported(model):
        return None
    if mode != "plain" and not (state.mask.is_cuda and max_tokens >= MIN_STEPS):
        return None
    if state.cache.length + max_tokens - 1 > model.config.max_position_embeddings:
        return None
    with torch.no_grad():
        if not supports_fused_step(model.decoder):
            return None
    rows, needed = len(state.mask), state.cache.length + max_tokens
    room = -(-needed // MIN_SPAN) * MIN_SPAN
    key = rows, room, kind, mode
    old, found = _kept.get(model, (None, None))
    if found is None or old != key or found.busy or found.weights != _weight_addresses(model):
        _kept.pop(model, None)
        with _static():
            found = CudaGraphDecoder(model, rows=rows, room=room, choose=choose, mode=mode)
        _kept[model] = key, found
    found.busy = True
    return found


def _is_supported(model: Any) -> bool:
    decoder, embedding = getattr(model, "decoder", None), getattr(model, "embedding", None)
    if not isinstance(decoder, Stack) or not isinstance(embedding, TextEmbedding):
        return False
    tied = getattr(model, "output_weight", None) is embedding.tokens.weight
    return tied and type(embedding.positions) is LearnedPositions


def _weight_addresses(model: Any) -> list[tuple[int, torch.dtype]]:
    """The addresses of the weights: captured steps read them there."""
    return [(parameter.data_ptr(), parameter.dtype) for parameter in model.parameters()]


@contextmanager
def _static() -> Iterator[None]:
    """No gradients, and no inference mode, whose tensors cannot be written outside of it."""
    with torch.inference_mode(False), torch.no_grad():
        yield
