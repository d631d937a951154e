"""CUDA graphs: the kernels of a computation, which are always the same, are launched as one.

Launching them one by one takes the CPU longer than the GPU needs for a batch of short texts. A graph has fixed shapes
and addresses. `GraphRecorder` records and keeps graphs for all of Regard: forward passes (`GraphedForward`), decoding
steps (`engine.graph_decoder`) and the forward and backward passes of a training. With them embedding with BERT-base
in bf16 is 1.14 times as fast for short texts and 1.21 times for paragraphs (H200, alternating, 2026-11-19); a single
forward pass alone is not (benchmarks/results/fast_paths-cuda.json), since there nothing else needs the CPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batch import Batch
from regard.engine.batches import pack_arrays, split_arrays, to_device
from regard.nn.attention import Attention
from regard.nn.experts import Experts
from regard.nn.kernels import HALF, HEAD_WIDTHS
from regard.nn.stack import Stack
from regard.text import TokenIds

# The longest sequence in a batch of each kind, and the mean length from which on its sequences fit into the graph.
LENGTHS = {16: 4, 32: 8, 64: 16, 128: 16, 256: 64, 512: 128}
MIN_FILLED = 0.1  # of a graph's tokens; smaller batches run without it
MIN_USES = 3  # batches of a kind before its graph is recorded: a graph costs as much as several forward passes

capture_lock = RLock()  # only one thread may record at a time


class GraphRecorder:
    """CUDA graphs of one device by key. They share their memory, so only one of them may run at a time.

    A graph reads its inputs where they were when it was recorded; its result is valid until the next replay.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.graphs: dict[Hashable, Callable[..., Any]] = {}
        self._pool: Any = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def record(
        self,
        key: Hashable,
        run: Callable[[], Any],
        *,
        warm_up: Callable[[], Any] | None = None,
        changed: Sequence[Tensor] = (),
    ) -> Callable[[], Any]:
        """Record `run`, which must not synchronize with the GPU.

        `warm_up`, by default `run` itself, runs before: kernels are compiled and libraries allocate. The tensors that
        it `changed` then get their values back. Returns a function that replays the graph and returns the result.
        """
        before = [tensor.clone() for tensor in changed]
        graph = torch.cuda.CUDAGraph()
        with capture_lock, torch.cuda.device(self.device):
            with self._side_stream():
                (warm_up or run)()
            torch.cuda.synchronize(self.device)
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                result = run()
        for tensor, old in zip(changed, before, strict=True):
            tensor.copy_(old)

        def replay() -> Any:
            graph.replay()
            return result

        self.graphs[key] = replay
        return replay

    def record_passes(self, key: Hashable, module: nn.Module, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        """Record the forward and the backward pass of a module for inputs of these shapes.

        Returns a function of such inputs through which gradients reach the parameters. Random numbers of the run are
        not used up.
        """
        with capture_lock, torch.random.fork_rng([self.device.index or 0]):
            passes: Callable[..., Any] = torch.cuda.make_graphed_callables(
                module,
                tuple(tensor.clone() for tensor in inputs),
                num_warmup_iters=1,
                allow_unused_input=True,
                pool=self._pool,
            )
        self.graphs[key] = passes
        return passes

    @contextmanager
    def _side_stream(self) -> Iterator[None]:
        """Inside the block, kernels run on another stream, as those of a recording do."""
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream(self.device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            yield
        current.wait_stream(stream)


def depends_on_lengths(model: nn.Module, dtype: torch.dtype) -> bool:
    """Whether the kernels for a packed batch depend on its texts, so that a graph cannot record them.

    Experts get the tokens that chose them. A position bias, a score module, attention in float32 and heads of unusual
    width need one call of attention for each length.
    """
    return dtype not in HALF or any(
        (isinstance(module, Stack) and module.relative is not None)
        or (isinstance(module, Attention) and (module.score is not None or _has_odd_heads(module)))
        or isinstance(module, Experts)
        for module in model.modules()
    )


def _has_odd_heads(attention: Attention) -> bool:
    """Whether no kernel for packed batches has heads of this width."""
    output = attention.output
    return isinstance(output, nn.Linear) and output.in_features // attention.heads not in HEAD_WIDTHS


class GraphedForward:
    """`forward(tokens)` with CUDA graphs for batches of up to `num_tokens` tokens.

    `compute` maps a batch to one row per sequence, without synchronizing with the GPU. There is one graph for each
    range of lengths, and batches are filled up to its size. It is recorded after a few batches of its kind.
    """

    def __init__(self, compute: Callable[[Batch], Tensor], device: torch.device, num_tokens: int) -> None:
        self.compute, self.device, self.num_tokens = compute, device, num_tokens
        self.uses: Counter[int] = Counter()
        self.recorder = GraphRecorder(device)
        self.buffers: dict[int, Tensor] = {}  # the inputs of the graphs

    def __call__(self, tokens: TokenIds) -> Tensor:
        longest, count = int(tokens.lengths.max()), int(tokens.lengths.sum())
        kind = next((length for length in LENGTHS if length >= longest), 0)
        filled = MIN_FILLED * self.num_tokens < count <= self.num_tokens
        if not kind or not filled or len(tokens) > self._sequences(kind):
            return self.compute(to_device(tokens, self.device))
        self.uses[kind] += 1
        if kind not in self.buffers:
            if self.uses[kind] < MIN_USES:
                return self.compute(to_device(tokens, self.device))
            self._record(kind)
        arrays = torch.from_numpy(pack_arrays(tokens, self.num_tokens, self._sequences(kind)))
        self.buffers[kind].copy_(arrays.pin_memory(), non_blocking=True)
        result: Tensor = self.recorder.graphs[kind]()
        return result[: len(tokens)]

    def _sequences(self, kind: int) -> int:
        """The number of sequences of a graph."""
        return self.num_tokens // LENGTHS[kind]

    def _record(self, kind: int) -> None:
        size = 2 * self.num_tokens + self._sequences(kind) + 1
        self.buffers[kind] = torch.zeros(size, dtype=torch.int32, device=self.device)
        batch = split_arrays(self.buffers[kind], self.num_tokens, max_length=kind, sizes=None)
        self.recorder.record(kind, lambda: self.compute(batch))
