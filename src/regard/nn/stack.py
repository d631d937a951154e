"""A stack of layers: an encoder, or a decoder if its layers are causal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from regard.nn import recording
from regard.nn.cache import StackCache
from regard.nn.masks import Context, Layout
from regard.nn.training import Dropout


class ScalarMix(nn.Module):
    """gamma * sum_j softmax(s)_j h_j, with a learned weight s per layer and a learned scale gamma."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.s = nn.Parameter(torch.zeros(count))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        if len(states) != len(self.s):
            raise ValueError(f"expected {len(self.s)} layers, got {len(states)}")
        mixed: Tensor = self.gamma * torch.tensordot(self.s.softmax(0), torch.stack(list(states)), dims=1)
        return mixed


class Stack(nn.Module):
    """A sequence of layers, each called as `layer(x, context)`. Layers may differ.

    `norm` follows the last layer. `relative` is a position bias that all layers share, as in T5:
    `relative(queries, keys)` is (1, H, T, S).
    """

    def __init__(
        self,
        layers: Iterable[nn.Module],
        *,
        norm: nn.Module | None = None,
        relative: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()
        self.relative = relative
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, context: Context | Layout) -> Tensor:
        """Return the last hidden state, or (M, W) for the `output_positions` of the context.

        With them, the last layer skips most of the computation for other positions, as masked language modeling
        allows.
        """
        for state in self.states(x, context):
            x = state
        return x

    def states(self, x: Tensor, context: Context | Layout) -> Iterator[Tensor]:
        """Yield each hidden state: x first, the last one after the final norm. Later layers run only if requested."""
        context = Context.of(context)
        depth, bias = len(self.layers), self._bias(x, context.layout, context.cache)
        recording.record_hidden_state(self, 0, x, context.layout)
        yield x
        for index, layer in enumerate(self.layers):
            own = context.for_layer(index, of=depth, bias=bias)
            x = layer(x, own)
            if index == depth - 1:
                x = self.dropout(self.norm(x))
            if own.output_positions is None:
                recording.record_hidden_state(self, index + 1, x, context.layout)
            yield x

    def _bias(self, x: Tensor, layout: Layout, cache: StackCache | None) -> Tensor | None:
        if self.relative is None:
            return None
        length = layout.longest_sequence(x)
        bias: Tensor = self.relative(length, length + (cache.length if cache else 0))
        return bias
