"""Full batches as CUDA graphs: the kernels of a forward pass, which are always the same, are launched as one.

Launching them one by one takes the CPU longer than the GPU needs for a batch of short texts. A graph has fixed shapes,
so there is one for each range of lengths, and batches are filled up to its size. It is recorded after a few batches of
its kind have run without it: a graph costs as much as several forward passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.data.batch import Batch
from regard.engine.batches import pack_arrays, split_arrays, to_device
from regard.nn.attention import HALF, Attention
from regard.nn.stack import Stack
from regard.text import TokenIds

# The longest sequence in a batch of each kind, and the mean length from which on its sequences fit into the graph.
LENGTHS = {16: 4, 32: 8, 64: 16, 128: 16, 256: 64, 512: 128}
MIN_FILLED = 0.1  # of a graph's tokens; smaller batches run without it
MIN_USES = 3  # batches of a kind before its graph is recorded


def depends_on_lengths(model: nn.Module, dtype: torch.dtype) -> bool:
    """Whether the kernels for a packed batch depend on the lengths of its texts, so that a graph cannot record them.

    A position bias, a score module and attention in float32 need one call of attention for each length.
    """
    return dtype not in HALF or any(
        (isinstance(module, Stack) and module.relative is not None)
        or (isinstance(module, Attention) and module.score is not None)
        for module in model.modules()
    )


class GraphedForward:
    """`forward(tokens)` with CUDA graphs for batches of up to `num_tokens` tokens.

    `compute` maps a batch to one row per sequence, without synchronizing with the GPU.
    """

    def __init__(self, compute: Callable[[Batch], Tensor], device: torch.device, num_tokens: int) -> None:
        self.compute, self.device, self.num_tokens = compute, device, num_tokens
        self.uses: Counter[int] = Counter()
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}

    def __call__(self, tokens: TokenIds) -> Tensor:
        longest, count = int(tokens.lengths.max()), int(tokens.lengths.sum())
        kind = next((length for length in LENGTHS if length >= longest), 0)
        filled = MIN_FILLED * self.num_tokens < count <= self.num_tokens
        if not kind or not filled or len(tokens) > self._sequences(kind):
            return self.compute(to_device(tokens, self.device))
        self.uses[kind] += 1
        if kind not in self.graphs:
            if self.uses[kind] < MIN_USES:
                return self.compute(to_device(tokens, self.device))
            self.graphs[kind] = self._record(kind)
        graph, buffer, result = self.graphs[kind]
        arrays = torch.from_numpy(pack_arrays(tokens, self.num_tokens, self._sequences(kind)))
        buffer.copy_(arrays.pin_memory(), non_blocking=True)
        graph.replay()
        return result[: len(tokens)]

    def _sequences(self, kind: int) -> int:
        """The number of sequences of a graph."""
        return self.num_tokens // LENGTHS[kind]

    def _record(self, kind: int) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        sequences = self._sequences(kind)
        buffer = torch.zeros(2 * self.num_tokens + sequences + 1, dtype=torch.int32, device=self.device)
        batch = split_arrays(buffer, self.num_tokens, max_length=kind, sizes=None)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.device):
            self.compute(batch)  # kernels are compiled before the recording
            with torch.cuda.graph(graph):
                result = self.compute(batch)
        return graph, buffer, result
