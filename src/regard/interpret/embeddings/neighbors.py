"""Exact nearest neighbors by cosine, computed in blocks: memory grows with the number of vectors, not its square."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BLOCK_SIZE = 512  # vectors compared at a time


@dataclass(frozen=True, eq=False)
class Neighbors:
    """`indices` (n, k) of the nearest other vectors, nearest first, and their `cosines` (n, k)."""

    indices: NDArray[np.int64]
    cosines: NDArray[np.float64]


def nearest_neighbors(vectors: NDArray[np.floating], count: int) -> Neighbors:
    """The `count` nearest other vectors of each vector, or all others if there are fewer.

    Ties are broken by index. A zero vector has the cosine 0 with all others.
    """
    unit = normalize(vectors)
    number = len(unit)
    count = max(0, min(count, number - 1))
    indices = np.empty((number, count), dtype=np.int64)
    cosines = np.empty((number, count))
    for start in range(0, number, BLOCK_SIZE):
        block = np.clip(unit[start : start + BLOCK_SIZE] @ unit.T, -1.0, 1.0)
        rows = np.arange(len(block))
        block[rows, start + rows] = -np.inf  # a vector is not its own neighbor
        order = np.argsort(-block, axis=1, kind="stable")[:, :count]
        indices[start : start + BLOCK_SIZE] = order
        cosines[start : start + BLOCK_SIZE] = np.take_along_axis(block, order, axis=1)
    return Neighbors(indices, cosines)


def cosine_similarity(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """The cosines of all pairs, (n, width) -> (n, n); 0 for a zero vector."""
    unit = normalize(vectors)
    return np.clip(unit @ unit.T, -1.0, 1.0)


def normalize(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """The vectors with length 1; zero vectors stay zero."""
    exact = vectors.astype(np.float64)
    unit: NDArray[np.float64] = exact / np.maximum(np.linalg.norm(exact, axis=1, keepdims=True), 1e-300)
    return unit
