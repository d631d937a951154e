"""Keys and values in tensors of fixed size and address, as CUDA graphs require."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.nn.cache import KVCache, StackCache


class StaticKVCache(KVCache):
    """The cache of one attention: each row writes to its own position and attends to the first `span` positions."""

    def __init__(self, stored: tuple[Tensor, Tensor], rows: Tensor, positions: Tensor, span: int) -> None:
        super().__init__()
        self.keys, self.values = stored
        self.rows, self.positions, self.span = rows, positions, span

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write the key and value (B, H, 1, D) of each row; return the first `span` positions, unused ones included."""
        self.keys[self.rows, :, self.positions] = key[:, :, 0]
        self.values[self.rows, :, self.positions] = value[:, :, 0]
        return self.keys[:, :, : self.span], self.values[:, :, : self.span]


class StaticCache:
    """The keys and values (B, H, S, D) of all layers, and `positions` (B,), where each row writes next.

    There is one position more than `room`; no span includes it, so values written there are never read.
    """

    def __init__(
        self, depth: int, *, rows: int, heads: int, room: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.room = room
        shape = rows, heads, room + 1, width
        self.pairs = [
            (torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, device=device))
            for _ in range(depth)
        ]
        self.rows = torch.arange(rows, device=device)
        self.positions = torch.zeros(rows, dtype=torch.long, device=device)
        self.order = torch.arange(room, device=device)

    def load(self, cache: StackCache, lengths: Tensor) -> None:
        """Copy the cache of prompts that are padded on the right; row i has lengths[i] tokens."""
        for (keys, values), layer in zip(self.pairs, cache.layers, strict=True):
            assert layer.self_attention.key is not None and layer.self_attention.value is not None
            keys[:, :, : cache.length].copy_(layer.self_attention.key)
            values[:, :, : cache.length].copy_(layer.self_attention.value)
        self.positions.copy_(lengths)

    def cache(self, span: int) -> StackCache:
        """Return a cache of the first `span` positions."""
        cache = StackCache(len(self.pairs))
        for layer, pair in zip(cache.layers, self.pairs, strict=True):
            layer.self_attention = StaticKVCache(pair, self.rows, self.positions, span)
        return cache

    def mask(self, span: int) -> Tensor:
        """Return the mask (B, S) over the first `span` positions for the token at each row's position."""
        return self.order[:span] <= self.positions[:, None]
