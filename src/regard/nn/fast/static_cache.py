"""Keys and values in tensors of a fixed size and address, as captured CUDA graphs need them."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.nn.cache import KVCache, StackCache

__all__ = ["StaticCache", "StaticKVCache"]


class StaticKVCache(KVCache):
    """One attention's share: a row's next pair goes to the row's own place, and the first `span` places are seen."""

    def __init__(self, stored: tuple[Tensor, Tensor], rows: Tensor, places: Tensor, span: int) -> None:
        super().__init__()
        self.keys, self.values = stored
        self.rows, self.places, self.span = rows, places, span

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write the pair (B, H, 1, D) of each row and return the first places of all, what is not used yet included."""
        self.keys[self.rows, :, self.places] = key[:, :, 0]
        self.values[self.rows, :, self.places] = value[:, :, 0]
        return self.keys[:, :, : self.span], self.values[:, :, : self.span]


class StaticCache:
    """The keys and values (B, H, S, D) of all layers, and `places` (B,), where the next pair of each row belongs.

    There is one place more than `room`, which no span reaches: what is written there is never seen.
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
        self.places = torch.zeros(rows, dtype=torch.long, device=device)
        self.order = torch.arange(room, device=device)

    def load(self, cache: StackCache, lengths: Tensor) -> None:
        """Take over what a cache holds of prompts that are padded on the right; row i has lengths[i] tokens."""
        for (keys, values), layer in zip(self.pairs, cache.layers, strict=True):
            assert layer.self_attention.key is not None and layer.self_attention.value is not None
            keys[:, :, : cache.length].copy_(layer.self_attention.key)
            values[:, :, : cache.length].copy_(layer.self_attention.value)
        self.places.copy_(lengths)

    def cache(self, span: int) -> StackCache:
        """A cache over the first `span` places."""
        found = StackCache(len(self.pairs))
        for layer, pair in zip(found.layers, self.pairs, strict=True):
            layer.self_attention = StaticKVCache(pair, self.rows, self.places, span)
        return found

    def keep(self, span: int) -> Tensor:
        """Which of the first `span` places (B, S) may be seen by the token that goes to each row's place."""
        return self.order[:span] <= self.places[:, None]
