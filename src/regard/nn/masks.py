"""How a batch lies in memory, and which token may look at which.

A batch is `Padded` (a rectangle, some places of which hold no token) or `Packed` (one sequence behind the other, no
padding at all). Every layer but attention treats tokens one by one, so only attention looks at the layout.
Masks follow one convention: bool, True = may be attended to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

__all__ = [
    "Layout",
    "LengthGroup",
    "Packed",
    "Padded",
    "attention_mask",
    "first_token_indices",
    "first_tokens",
    "from_padded",
    "length_groups",
    "select_rows",
    "to_padded",
]


@dataclass(frozen=True, eq=False)
class Padded:
    """A rectangular batch (B, T, ...), padded on the right. `keep` (B, T): True where there is a token; None: all."""

    mask: Tensor | None = None

    @staticmethod
    def from_lengths(lengths: Sequence[int], *, device: torch.device | str | None = None) -> Padded:
        """Right padding to the longest of `lengths`."""
        size = torch.tensor(lengths, device=device)
        return Padded(torch.arange(max(lengths), device=device) < size[:, None])

    def positions(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        """The place of each token in its sequence, (T,); `start` tokens came before, or as many per row (B, 1)."""
        return torch.arange(x.shape[1], device=x.device) + start

    def longest_sequence(self, x: Tensor) -> int:
        """The number of tokens of the longest sequence, padding counted."""
        return x.shape[1]


@dataclass(frozen=True, eq=False)
class Packed:
    """Sequences one behind the other, (N, ...) with N the sum of their lengths. Build it with `Packed.of`.

    Without `sizes` all it says lies in tensors and `limit`, so that batches of other lengths have the same shape, as
    compiled code and a GPU's kernels like it; `starts` may then end with empty sequences.
    """

    sizes: tuple[int, ...] | None
    starts: Tensor  # (B + 1,) int32, where each sequence begins and the last one ends
    position_ids: Tensor  # (N,) the place of each token in its sequence
    max_length: int  # no sequence is longer

    @staticmethod
    def from_lengths(lengths: Sequence[int], *, device: torch.device | str | None = None) -> Packed:
        if not lengths or min(lengths) < 1:
            raise ValueError(f"a packed batch needs sequences of at least one token, got lengths {list(lengths)[:8]}")
        size = torch.tensor(lengths)
        ends = size.cumsum(0)
        places = torch.arange(int(ends[-1])) - (ends - size).repeat_interleave(size)
        starts = torch.cat([torch.zeros(1, dtype=torch.int32), ends.to(torch.int32)])
        return Packed(tuple(lengths), starts.to(device), places.to(device), max(lengths))

    @property
    def lengths(self) -> tuple[int, ...]:
        """Of the sequences; without `sizes` their device must be waited for."""
        return self.sizes or tuple(length for length in self.starts.diff().tolist() if length)

    def positions(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        return self.position_ids + start

    def longest_sequence(self, x: Tensor) -> int:
        return self.max_length


Layout = Padded | Packed


def attention_mask(layout: Padded, x: Tensor, queries: int, keys: int, *, causal: bool) -> Tensor | None:
    """The mask for `queries` tokens at the end of `keys` tokens, to broadcast to (B, H, T, S); None: all allowed."""
    keep = layout.mask
    mask = None if keep is None else keep[:, None, None, :keys]
    if causal and queries > 1:
        order = torch.ones(queries, keys, dtype=torch.bool, device=x.device).tril(keys - queries)
        mask = order if mask is None else mask & order
    return mask


@dataclass(frozen=True)
class LengthGroup:
    """Neighbouring sequences of a packed batch with the same number of queries and keys: a rectangle, no padding."""

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
        return x[start : start + self.count * length].view(self.count, length, *x.shape[1:])


def length_groups(queries: Packed, keys: Packed) -> Iterator[LengthGroup]:
    """Cut two packed layouts of the same number of sequences into runs."""
    query_start = key_start = 0
    for (t, s), group in groupby(zip(queries.lengths, keys.lengths, strict=True)):
        count = sum(1 for _ in group)
        yield LengthGroup(count, t, s, query_start, key_start)
        query_start += count * t
        key_start += count * s


def select_rows(x: Tensor, rows: Tensor) -> Tensor:
    """The vectors at some places of the flat batch, (M, W), whatever its layout."""
    return x.reshape(-1, x.shape[-1])[rows]


def first_tokens(x: Tensor, layout: Layout) -> Tensor:
    """The vector of each sequence's first token, (B, W): [CLS] in BERT."""
    return x[:, 0] if isinstance(layout, Padded) else x[first_token_indices(x, layout)]


def first_token_indices(x: Tensor, layout: Layout) -> Tensor:
    """The place of each sequence's first token in the flat batch x, (B,)."""
    if isinstance(layout, Padded):
        return torch.arange(0, x.shape[0] * x.shape[1], x.shape[1], device=x.device)
    return layout.starts[:-1].long().clamp(max=len(x) - 1)  # an empty sequence at the end has none


def to_padded(x: Tensor, layout: Layout) -> tuple[Tensor, Padded]:
    """The same batch as a rectangle; places without a token hold zeros if it was packed."""
    if isinstance(layout, Padded):
        return x, layout
    rows = torch.nn.utils.rnn.pad_sequence(list(torch.split(x, list(layout.lengths))), batch_first=True)
    return rows, Padded.from_lengths(layout.lengths, device=x.device)


def from_padded(x: Tensor, layout: Layout) -> Tensor:
    """The way back from `padded`: give a rectangle the layout it came from."""
    if isinstance(layout, Padded):
        return x
    return torch.cat([row[:length] for row, length in zip(x, layout.lengths, strict=True)])
