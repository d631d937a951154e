"""Groups texts into batches and collates their token ids into tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.nn.masks import MAX_SEQUENCES, Layout, Packed, Padded

Item = TypeVar("Item")
Indices = NDArray[np.int64]
CHARACTERS = 1 << 22  # of text in memory at once


@dataclass(frozen=True, eq=False)
class Batch:
    """Model inputs: `model(batch.ids, batch.layout)`."""

    ids: Tensor
    layout: Layout

    def to(self, device: torch.device) -> Batch:
        layout = self.layout
        if isinstance(layout, Packed):
            layout = Packed(layout.sizes, layout.starts.to(device), layout.position_ids.to(device), layout.max_length)
        elif layout.mask is not None:
            layout = Padded(layout.mask.to(device))
        return Batch(self.ids.to(device), layout)


def collate(texts: Sequence[Sequence[int]], *, packed: bool = True, padding: int = 0) -> Batch:
    """Collate token ids into a batch: packed without padding, or padded on the right with the id `padding`."""
    lengths = [len(ids) for ids in texts]
    if not lengths or min(lengths) == 0:
        raise ValueError(f"a batch needs texts of at least one token, got lengths {lengths[:8]}")
    if packed:
        return Batch(torch.tensor(list(chain.from_iterable(texts))), Packed.from_lengths(lengths))
    ids = torch.full((len(texts), max(lengths)), padding)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = torch.tensor(text)
    return Batch(ids, Padded(None) if min(lengths) == max(lengths) else Padded.from_lengths(lengths))


def group_by_token_budget(lengths: Sequence[int] | Indices, budget: int) -> list[Indices]:
    """Group the indices of texts by length, longest first, with at most `budget` tokens (or one text) per group."""
    if len(lengths) == 1:
        return [np.zeros(1, dtype=np.int64)]
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    ends = np.cumsum(sizes[order])
    groups, start = [], 0
    while start < len(order):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + budget, side="right"))
        stop = min(max(stop, start + 1), start + MAX_SEQUENCES)
        groups.append(order[start:stop])
        start = stop
    return groups


def group_by_size(
    items: Iterable[Item], size: Callable[[Item], int], *, budget: int = CHARACTERS, most: int | None = None
) -> Iterator[list[Item]]:
    """Yield lists of items in order whose sizes add up to at most `budget`, or of one item; at most `most` of them."""
    group: list[Item] = []
    room = budget
    for item in items:
        needed = size(item)
        if group and needed > room:
            yield group
            group, room = [], budget
        group.append(item)
        room -= needed
        if len(group) == most:  # whoever sends the items may wait for an answer
            yield group
            group, room = [], budget
    if group:
        yield group


def in_groups(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield the items in order, `size` at a time (at least one)."""
    step = max(1, size)
    return (items[start : start + step] for start in range(0, len(items), step))
