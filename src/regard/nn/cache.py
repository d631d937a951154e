"""What a decoder remembers between steps: the keys and values of each layer.

A cache belongs to a call, never to a module, so one model can decode many texts at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.nn.masks import Padded

__all__ = ["Cache", "LayerCache", "Pairs", "State"]


class Pairs:
    """The keys and values (B, H, S, D) that one attention has seen."""

    def __init__(self) -> None:
        self.key: Tensor | None = None
        self.value: Tensor | None = None

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append what came in this step and return all there is."""
        if self.key is not None and self.value is not None:
            key, value = torch.cat([self.key, key], dim=2), torch.cat([self.value, value], dim=2)
        self.key, self.value = key, value
        return key, value

    def reorder(self, index: Tensor) -> None:
        if self.key is not None and self.value is not None:
            self.key, self.value = self.key[index], self.value[index]


class LayerCache:
    """One layer's share: self-attention grows, cross-attention is filled once per source."""

    def __init__(self) -> None:
        self.own = Pairs()
        self.cross = Pairs()


class Cache:
    """The cache of a whole stack, and how many tokens it has seen."""

    def __init__(self, depth: int) -> None:
        self.layers = [LayerCache() for _ in range(depth)]

    @property
    def length(self) -> int:
        key = self.layers[0].own.key
        return 0 if key is None else key.shape[2]

    def reorder(self, index: Tensor) -> None:
        """Row i continues what row index[i] began: beam search's move."""
        for layer in self.layers:
            layer.own.reorder(index)
            layer.cross.reorder(index)


@dataclass(eq=False)
class State:
    """Where a decoding stands: what was said, and the source it is said about, if there is one.

    `keep` (B, S) marks the cached places that hold a token and `lengths` (B,) counts them: prompts of different lengths
    are padded on the right, and the next token of each row follows its own last one.
    """

    cache: Cache
    keep: Tensor
    memory: Tensor | None = None
    memory_layout: Padded | None = None

    @property
    def lengths(self) -> Tensor:
        return self.keep.sum(1)

    def grow(self, count: int) -> None:
        """Make room for `count` more tokens in every row."""
        self.keep = torch.cat([self.keep, self.keep.new_ones(len(self.keep), count)], dim=1)

    def reorder(self, index: Tensor) -> None:
        """Row i continues what row index[i] began."""
        self.cache.reorder(index)
        self.keep = self.keep[index]
        if self.memory is not None:
            self.memory = self.memory[index]
        if self.memory_layout is not None and self.memory_layout.keep is not None:
            self.memory_layout = Padded(self.memory_layout.keep[index])
