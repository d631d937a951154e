"""The keys and values that a decoder keeps between steps, for each layer.

A cache belongs to a call and not to a module, so one model can decode several texts at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from regard.nn.masks import Padded

MIN_CAPACITY = 64  # positions


class KVCache:
    """The keys and values (B, H, S, D) of one attention.

    From the second call on, the tensors have spare capacity, so a step only writes its own position.
    With gradients they are concatenated instead, since autograd needs its inputs unchanged.
    """

    def __init__(self) -> None:
        self.length = 0
        self._stored: tuple[Tensor, Tensor] | None = None

    @property
    def key(self) -> Tensor | None:
        return None if self._stored is None else self._stored[0][:, :, : self.length]

    @property
    def value(self) -> Tensor | None:
        return None if self._stored is None else self._stored[1][:, :, : self.length]

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values of this step and return all of them."""
        before, self.length = self.length, self.length + key.shape[2]
        if self._stored is None:
            self._stored = key, value
            return key, value
        stored, _ = self._stored
        writable = not (key.requires_grad or stored.requires_grad)
        writable = writable and stored.is_inference() <= torch.is_inference_mode_enabled()
        if not writable:
            self._stored = tuple(  # type: ignore[assignment]
                torch.cat([old[:, :, :before], new], dim=2) for old, new in zip(self._stored, (key, value), strict=True)
            )
            return self._stored  # type: ignore[return-value]
        if stored.shape[2] < self.length:
            self._stored = (
                _with_capacity(self._stored[0], before, self.length),
                _with_capacity(self._stored[1], before, self.length),
            )
        keys, values = self._stored  # `narrow` takes half the time of slicing
        keys.narrow(2, before, key.shape[2]).copy_(key)
        values.narrow(2, before, key.shape[2]).copy_(value)
        return keys.narrow(2, 0, self.length), values.narrow(2, 0, self.length)

    def truncate(self, length: int) -> None:
        """Remove all but the first `length` positions."""
        self.length = min(self.length, length)

    def reorder(self, index: Tensor) -> None:
        """Row i becomes row index[i]; only the used positions are copied."""
        if self._stored is not None:
            self._stored = (
                _reorder(self._stored[0], self.length, index),
                _reorder(self._stored[1], self.length, index),
            )


def _reorder(stored: Tensor, used: int, index: Tensor) -> Tensor:
    if stored.shape[2] == used or stored.requires_grad:
        return stored[index]
    moved = stored.new_empty(len(index), *stored.shape[1:])
    torch.index_select(stored[:, :, :used], 0, index, out=moved[:, :, :used])
    return moved


def _with_capacity(stored: Tensor, used: int, needed: int) -> Tensor:
    """Copy the used positions to a tensor with twice the needed capacity."""
    batch, heads, _, width = stored.shape
    larger = stored.new_empty(batch, heads, max(2 * needed, MIN_CAPACITY), width)
    larger[:, :, :used] = stored[:, :, :used]
    return larger


class LayerCache:
    """The caches of one layer: that of self-attention grows, that of cross-attention is filled once per source."""

    def __init__(self) -> None:
        self.self_attention = KVCache()
        self.cross_attention = KVCache()


class StackCache:
    """The caches of a whole stack."""

    def __init__(self, depth: int) -> None:
        self.layers = [LayerCache() for _ in range(depth)]

    @property
    def length(self) -> int:
        return self.layers[0].self_attention.length

    def reorder(self, index: Tensor, sources: Tensor | None = None) -> None:
        """Row i continues row index[i], as in beam search; `sources` reorders the rows of the cross-attention."""
        for layer in self.layers:
            layer.self_attention.reorder(index)
            if sources is not None:
                layer.cross_attention.reorder(sources)


@dataclass(eq=False)
class DecoderState:
    """The state of a decoder: the cached tokens and, for an encoder-decoder, the encoded source.

    `mask` (B, S) is True at cached positions that hold a token, and `lengths` (B,) counts them: prompts of different
    lengths are padded on the right, and the next token of each row follows its own last token. `is_full` means that
    every position holds a token, so no mask is needed. `rows_per_source` neighboring rows share a row of the memory and
    its keys and values, so that beams do not copy their source.
    """

    cache: StackCache
    mask: Tensor
    memory: Tensor | None = None
    memory_layout: Padded | None = None
    is_full: bool = False
    rows_per_source: int = 1

    @property
    def layout(self) -> Padded:
        """The layout of all cached tokens."""
        return Padded() if self.is_full else Padded(self.mask)

    @property
    def lengths(self) -> Tensor:
        if self.is_full:
            return torch.full(self.mask.shape[:1], self.mask.shape[1], device=self.mask.device)
        return self.mask.sum(1)

    def extend(self, count: int) -> None:
        """Make room for `count` more tokens in every row."""
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), count)], dim=1)

    def truncate(self, length: int) -> None:
        """Remove all but the first `length` tokens of every row."""
        self.mask = self.mask[:, :length]
        for layer in self.cache.layers:
            layer.self_attention.truncate(length)

    def reorder(self, index: Tensor) -> None:
        """Row i continues row index[i]."""
        self.mask = self.mask[index]
        sources = None
        if self.memory is not None:
            self.rows_per_source, order = _group_sources((index // self.rows_per_source).tolist())
            if order != list(range(len(self.memory))):
                sources = torch.tensor(order, device=index.device)
                self._select_sources(sources)
        self.cache.reorder(index, sources)

    def expand_memory(self) -> None:
        """Give each row its own copy of the memory."""
        if self.rows_per_source > 1:
            assert self.memory is not None
            sources = torch.arange(len(self.memory), device=self.memory.device).repeat_interleave(self.rows_per_source)
            self.rows_per_source = 1
            self._select_sources(sources)
            for layer in self.cache.layers:
                layer.cross_attention.reorder(sources)

    def _select_sources(self, sources: Tensor) -> None:
        assert self.memory is not None
        self.memory = self.memory[sources]
        if self.memory_layout is not None and self.memory_layout.mask is not None:
            self.memory_layout = Padded(self.memory_layout.mask[sources])


def _group_sources(sources: Sequence[int]) -> tuple[int, list[int]]:
    """Return how many neighboring rows share a source and the source of each group; 1 if the groups differ in size."""
    groups = [(source, sum(1 for _ in rows)) for source, rows in groupby(sources)]
    sizes = {size for _, size in groups}
    if len(sizes) != 1:
        return 1, list(sources)
    return sizes.pop(), [source for source, _ in groups]
