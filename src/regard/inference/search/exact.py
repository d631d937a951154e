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

Vectors = NDArray[np.float32]  # (N, W)
Positions = NDArray[np.int64]

BLOCK_SIZE = 1 << 15  # rows of vectors
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
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _candidates(queries: torch.Tensor, vectors: Vectors, count: int, deleted: Positions | None) -> list[Positions]:
    best = [Ranking.empty() for _ in queries]
    lowest = torch.full((len(queries),), -torch.inf)  # the score that a row must exceed
    for block in blocks(len(vectors)):
        scores = queries @ torch.from_numpy(vectors[block]).T  # (Q, rows of the block)
        if deleted is not None:
            first, last = np.searchsorted(deleted, (block.start, block.stop))
            scores[:, torch.from_numpy(deleted[first:last] - block.start)] = -torch.inf
        if scores.shape[1] > count and torch.isinf(lowest).any():
            # All rows are candidates, so only the best of the block are compared; ties with the last of them stay.
            threshold = scores.topk(count, dim=1).values[:, -1:]
            chosen = (scores >= threshold) & (scores > lowest[:, None])
        else:
            chosen = scores > lowest[:, None]
        owners, rows = (part.numpy() for part in chosen.nonzero(as_tuple=True))
        values = scores[chosen].numpy().astype(np.float64)
        ends = np.searchsorted(owners, np.arange(len(queries) + 1))
        for owner in np.unique(owners):
            part = slice(ends[owner], ends[owner + 1])
            positions = np.concatenate([best[owner].positions, rows[part] + block.start])
            merged = Ranking.best(positions, np.concatenate([best[owner].scores, values[part]]), count)
            best[owner] = merged
            if len(merged.positions) == count:
                lowest[owner] = float(merged.scores[-1])
    return [one.positions for one in best]
