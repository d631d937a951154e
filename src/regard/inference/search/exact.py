"""Exact nearest neighbors: a blocked matrix product over memory-mapped vectors.

A pass reads every vector once, whatever the number of queries. Candidates are compared with the lowest score that is
still among the best, so that a block costs little more than its matrix product. Their scores are then computed again in
float64: they do not depend on the block, the batch or the number of threads, and equal vectors have equal scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.cancellation import check_cancelled

Vectors = NDArray[np.float32]  # (N, W)
Positions = NDArray[np.int64]

BLOCK_SIZE = 1 << 14  # rows of vectors: their scores stay in the caches
QUERY_BATCH = 256
SPARE = 32  # candidates beyond `top`, whose float32 scores may be in another order than the exact ones


class Ranking(NamedTuple):
    """Positions of rows in the order of their scores, the best first; equal scores are in the order of the rows."""

    positions: Positions
    scores: NDArray[np.float64]

    @classmethod
    def best(cls, positions: Positions, scores: NDArray[np.float64], top: int) -> Ranking:
        """Sort rows by score and keep the best."""
        order = np.lexsort((positions, -scores))[:top]
        return cls(positions[order], scores[order])

    @classmethod
    def merge(cls, rankings: Sequence[Ranking], top: int) -> Ranking:
        """The best of several rankings of different rows."""
        positions, scores = zip(*rankings, strict=True)
        return cls.best(np.concatenate(positions), np.concatenate(scores), top)

    @classmethod
    def empty(cls) -> Ranking:
        return cls(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64))


def search_exact(queries: Vectors, vectors: Vectors, top: int, *, deleted: Positions | None = None) -> list[Ranking]:
    """The `top` rows with the highest inner product for each query; `deleted` rows, which are sorted, are left out."""
    found: list[Ranking] = []
    for start in range(0, len(queries), QUERY_BATCH):
        batch = queries[start : start + QUERY_BATCH]
        candidates = _candidates(torch.from_numpy(batch), vectors, top + SPARE, deleted)
        found += [rescore(query, vectors, rows, top) for query, rows in zip(batch, candidates, strict=True)]
    return found


def rescore(query: Vectors, vectors: Vectors, positions: Positions, top: int) -> Ranking:
    """Rank candidates by their inner products in float64."""
    scores = (vectors[positions].astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    return Ranking.best(positions, scores, top)


def blocks(count: int, size: int = BLOCK_SIZE) -> Iterator[slice]:
    """Slices of at most `size` rows. Each is a check whether the computation is cancelled."""
    for start in range(0, count, size):
        check_cancelled()
        yield slice(start, min(start + size, count))


def _candidates(queries: torch.Tensor, vectors: Vectors, count: int, deleted: Positions | None) -> list[Positions]:
    """At least the best `count` rows of each query by their float32 scores, in any order."""
    best = _Candidates(len(queries), count)
    for block in blocks(len(vectors)):
        scores = _inner_products(queries, vectors[block])
        if deleted is not None:
            first, last = np.searchsorted(deleted, (block.start, block.stop))
            scores[:, torch.from_numpy(deleted[first:last] - block.start)] = -torch.inf
        chosen = scores > best.lowest[:, None]
        if scores.shape[1] > count and torch.isinf(best.lowest).any():
            # All rows would be candidates: only the best of the block are, with those that equal the last of them.
            chosen &= scores >= scores.topk(count, dim=1).values[:, -1:]
        owners, rows = chosen.nonzero(as_tuple=True)
        if len(owners):
            best.add(owners.numpy(), rows.numpy() + block.start, scores[owners, rows].numpy())
    return best.positions()


def _inner_products(queries: torch.Tensor, vectors: Vectors) -> torch.Tensor:
    """(Q, rows of the block). For one query numpy's matrix-vector product takes half the time of torch's on 2 cores."""
    if len(queries) == 1:
        return torch.from_numpy(np.asarray(vectors) @ queries[0].numpy())[None]
    return queries @ torch.from_numpy(vectors).T


class _Candidates:
    """The best rows of each query so far. New ones are collected, and sorted only when there are many."""

    def __init__(self, num_queries: int, count: int) -> None:
        self.count, self.limit = count, 2 * num_queries * count
        self.lowest = torch.full((num_queries,), -torch.inf)  # the score that a row must exceed
        self._size = 0
        self._parts: list[tuple[Positions, Positions, Vectors]] = []  # query, row, score

    def add(self, owners: Positions, rows: Positions, scores: Vectors) -> None:
        self._parts.append((owners, rows, scores))
        self._size += len(owners)
        if self._size > self.limit or torch.isinf(self.lowest).any():
            self._sort()

    def _sort(self) -> None:
        owners, rows, scores = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        order = np.lexsort((rows, -scores, owners))
        owners, rows, scores = owners[order], rows[order], scores[order]
        ranks = np.arange(len(owners)) - np.searchsorted(owners, owners)
        last = ranks == self.count - 1
        self.lowest[torch.from_numpy(owners[last])] = torch.from_numpy(scores[last])
        kept = ranks < self.count
        self._parts, self._size = [(owners[kept], rows[kept], scores[kept])], int(kept.sum())

    def positions(self) -> list[Positions]:
        """The rows of each query."""
        if not self._parts:
            return [np.empty(0, dtype=np.int64) for _ in self.lowest]
        self._sort()
        owners, rows, _ = self._parts[0]
        return np.split(rows, np.searchsorted(owners, np.arange(1, len(self.lowest))))
