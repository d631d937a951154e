"""Layouts of a batch, and attention masks.

A batch is `Padded` (rectangular, with padding) or `Packed` (sequences concatenated without padding). All layers except
attention are position-wise, so only attention depends on the layout. Masks are boolean; True: may be attended to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

MAX_SEQUENCES = 65_535  # of a packed batch: what the attention kernels of GPUs take


@dataclass(frozen=True, eq=False)
class Padded:
    """A rectangular batch (B, T, ...), padded on the right. `mask` (B, T) is True at tokens; None means no padding."""

    mask: Tensor | None = None

    @staticmethod
    def from_lengths(lengths: Sequence[int], *, device: torch.device | str | None = None) -> Padded:
        """Return a layout padded on the right to the longest of `lengths`."""
        size = torch.tensor(lengths, device=device)
        return Padded(torch.arange(max(lengths), device=device) < size[:, None])

    def positions(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        """Return the position of each token in its sequence, (T,); `start` is added and may differ per row (B, 1)."""
        return torch.arange(x.shape[1], device=x.device) + start

    def longest_sequence(self, x: Tensor) -> int:
        """Return the length of the longest sequence, including padding."""
        return x.shape[1]


@dataclass(frozen=True, eq=False)
class Packed:
    """Concatenated sequences (N, ...), with N the sum of their lengths. Create it with `Packed.from_lengths`.

    Without `sizes` the layout consists of tensors and `max_length` only, so that batches of different lengths have the
    same shape for compiled code and GPU kernels; `starts` may then end with empty sequences.
    """

    sizes: tuple[int, ...] | None
    starts: Tensor  # (B + 1,) int32: the start of each sequence and the end of the last
    position_ids: Tensor  # (N,) position of each token in its sequence
    max_length: int  # upper bound of the lengths
    num_fillers: int = 0  # sequences at the end whose output is not used: attention leaves them out

    @staticmethod
    def from_lengths(lengths: Sequence[int], *, device: torch.device | str | None = None) -> Packed:
        if not lengths or min(lengths) < 1:
            raise ValueError(f"a packed batch needs sequences of at least one token, got lengths {list(lengths)[:8]}")
        size = torch.tensor(lengths)
        ends = size.cumsum(0)
        position_ids = torch.arange(int(ends[-1])) - (ends - size).repeat_interleave(size)
        starts = torch.cat([torch.zeros(1, dtype=torch.int32), ends.to(torch.int32)])
        return Packed(tuple(lengths), starts.to(device), position_ids.to(device), max(lengths))

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of the sequences; without `sizes` this synchronizes with the device."""
        return self.sizes or tuple(length for length in self.starts.diff().tolist() if length)

    @cached_property
    def groups(self) -> tuple[LengthGroup, ...]:
        """The groups of equal lengths without the fillers, which every layer needs."""
        return tuple(length_groups(self, self, fillers=False))

    def positions(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        return self.position_ids if isinstance(start, int) and not start else self.position_ids + start

    def longest_sequence(self, x: Tensor) -> int:
        return self.max_length


Layout = Padded | Packed


def attention_mask(
    layout: Padded, x: Tensor, queries: int, keys: int, *, causal: bool, window: int | None = None
) -> Tensor | None:
    """Return the mask of the last `queries` of `keys` tokens, broadcastable to (B, H, T, S); None: no mask.

    A `window` leaves the keys whose position in the sequence differs by up to so much from that of the query.
    """
    mask = None if layout.mask is None else layout.mask[:, None, None, :keys]
    if causal and queries > 1:
        triangle = torch.ones(queries, keys, dtype=torch.bool, device=x.device).tril(keys - queries)
        mask = triangle if mask is None else mask & triangle
    if window is not None:
        # Padding between a prompt and its continuation has no position.
        order = torch.arange(keys, device=x.device) if layout.mask is None else layout.mask[:, :keys].cumsum(1)
        near = (order[..., None, :] - order[..., keys - queries :, None]).abs() <= window
        near = near if near.ndim == 2 else near[:, None]
        mask = near if mask is None else mask & near
    return mask


@dataclass(frozen=True)
class LengthGroup:
    """Neighboring sequences of a packed batch with equal numbers of queries and keys: a rectangle without padding."""

    count: int
    queries: int
    keys: int
    query_start: int
    key_start: int

    def select_queries(self, x: Tensor) -> Tensor:
        return self._rectangle(x, self.query_start, self.queries)

    def select_keys(self, x: Tensor) -> Tensor:
        return self._rectangle(x, self.key_start, self.keys)

    def _rectangle(self, x: Tensor, start: int, length: int) -> Tensor:
        rows = self.count * length
        return (x if rows == len(x) else x[start : start + rows]).view(self.count, length, *x.shape[1:])


def length_groups(queries: Packed, keys: Packed, *, fillers: bool = True) -> Iterator[LengthGroup]:
    """Split two packed layouts with the same number of sequences into groups of equal lengths."""
    query_start = key_start = 0
    lengths = list(zip(queries.lengths, keys.lengths, strict=True))
    for (t, s), group in groupby(lengths if fillers else lengths[: len(lengths) - queries.num_fillers]):
        count = sum(1 for _ in group)
        yield LengthGroup(count, t, s, query_start, key_start)
        query_start += count * t
        key_start += count * s


def select_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return the vectors (M, W) at indices of the flat batch, for either layout."""
    return x.reshape(-1, x.shape[-1])[rows]


def first_tokens(x: Tensor, layout: Layout) -> Tensor:
    """Return the vector of each sequence's first token, (B, W): [CLS] in BERT."""
    return x[:, 0] if isinstance(layout, Padded) else x[first_token_indices(x, layout)]


def first_token_indices(x: Tensor, layout: Layout) -> Tensor:
    """Return the index of each sequence's first token in the flat batch x, (B,)."""
    if isinstance(layout, Padded):
        return torch.arange(0, x.shape[0] * x.shape[1], x.shape[1], device=x.device)
    return layout.starts[:-1].long().clamp(max=len(x) - 1)  # an empty sequence at the end has no token


def to_padded(x: Tensor, layout: Layout) -> tuple[Tensor, Padded]:
    """Convert a batch to the padded layout; the padding of a packed batch is zero."""
    if isinstance(layout, Padded):
        return x, layout
    rows = torch.nn.utils.rnn.pad_sequence(list(torch.split(x, list(layout.lengths))), batch_first=True)
    return rows, Padded.from_lengths(layout.lengths, device=x.device)


def from_padded(x: Tensor, layout: Layout) -> Tensor:
    """The inverse of `to_padded`: convert a padded batch back to its original layout."""
    if isinstance(layout, Padded):
        return x
    return torch.cat([row[:length] for row, length in zip(x, layout.lengths, strict=True)])


@dataclass(frozen=True, eq=False)
class Context:
    """The arguments that a model passes to its stack, its layers and their attention.

    `memory` is the input of cross-attention, with its own layout. `bias` (1, H, T, S) is added to the attention scores.
    `cache` holds the keys and values of earlier steps for the module that receives the context: a stack, a layer or an
    attention. `output_positions` (M,) are indices into the flat batch: only their outputs are computed. `start` is the
    number of tokens before this input, one for the batch or one per row (B, 1), for modules that encode positions.
    """

    layout: Layout
    memory: Tensor | None = None
    memory_layout: Layout | None = None
    bias: Tensor | None = None
    cache: Any = None
    output_positions: Tensor | None = None
    start: int | Tensor = 0

    @staticmethod
    def of(context: Context | Layout) -> Context:
        """Return a context; a layout alone gives a context without memory or cache."""
        return context if isinstance(context, Context) else Context(context)

    def for_layer(self, number: int, *, of: int, bias: Tensor | None) -> Context:
        """Return the context of layer `number`, from 0, of a stack; only the last one selects positions."""
        cache = self.cache and self.cache.layers[number]
        positions = self.output_positions if number == of - 1 else None
        return Context(self.layout, self.memory, self.memory_layout, bias, cache, positions, self.start)

    def for_self_attention(self) -> Context:
        """Return the context of the self-attention of a layer."""
        cache = self.cache and self.cache.self_attention
        return Context(self.layout, None, None, self.bias, cache, self.output_positions, self.start)

    def for_cross_attention(self) -> Context:
        """Return the context of the cross-attention of a layer, which needs no bias and selects no positions."""
        return Context(self.layout, self.memory, self.memory_layout, cache=self.cache and self.cache.cross_attention)

    def select(self, x: Tensor) -> Tensor:
        """Return the vectors (M, W) at the `output_positions`, or x if all positions are computed."""
        return x if self.output_positions is None else select_rows(x, self.output_positions)
