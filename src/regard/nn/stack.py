"""A stack of blocks: an encoder, or a decoder when its blocks are causal."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from regard.nn import recording
from regard.nn.block import Block, LayerConfig
from regard.nn.cache import StackCache
from regard.nn.dropout import Dropout
from regard.nn.masks import Layout
from regard.nn.positions import RelativePositionBias

__all__ = ["Stack"]


class Stack(nn.Module):
    """`depth` blocks of one shape, each with its own weights; a final norm if asked for, T5's bias if given."""

    def __init__(
        self,
        layer: LayerConfig,
        depth: int,
        *,
        final_norm: bool = False,
        relative: RelativePositionBias | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(layer) for _ in range(depth))
        self.norm = layer.new_norm() if final_norm else nn.Identity()
        self.relative = relative
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        memory: Tensor | None = None,
        memory_layout: Layout | None = None,
        *,
        cache: StackCache | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """The last hidden state; of `rows` alone, places in the flat batch (M,), where these are given.

        Most of the last layer then has nothing to do for the others, as in masked language modelling.
        """
        for state in self.states(x, layout, memory, memory_layout, cache=cache, rows=rows):
            x = state
        return x

    def states(
        self,
        x: Tensor,
        layout: Layout,
        memory: Tensor | None = None,
        memory_layout: Layout | None = None,
        *,
        cache: StackCache | None = None,
        rows: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """Every hidden state as it is made: 0 is x itself, the last has the final norm. Stop early to save the rest."""
        bias = self._bias(x, layout, cache)
        recording.record_hidden_state(self, 0, x, layout)
        yield x
        for number, block in enumerate(self.layers, start=1):
            last = number == len(self.layers)
            wanted = rows if last else None
            x = block(
                x, layout, memory, memory_layout, bias=bias, cache=cache and cache.layers[number - 1], rows=wanted
            )
            if last:
                x = self.dropout(self.norm(x))
            if wanted is None:
                recording.record_hidden_state(self, number, x, layout)
            yield x

    def _bias(self, x: Tensor, layout: Layout, cache: StackCache | None) -> Tensor | None:
        if self.relative is None:
            return None
        length = layout.longest_sequence(x)
        bias: Tensor = self.relative(length, length + (cache.length if cache else 0))
        return bias
