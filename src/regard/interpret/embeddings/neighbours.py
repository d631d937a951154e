"""Which vectors are nearest to which, by cosine: exact, all against all.

Knows arrays. Knows no text and no model. Nothing is approximated: rows are compared in blocks, so that memory grows
with the number of vectors and not with its square.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.interpret.probes.senses import units

__all__ = ["Neighbours", "nearest_of"]

Numbers = NDArray[np.float64]

BLOCK = 512  # rows compared at a time


@dataclass(frozen=True, eq=False)
class Neighbours:
    """`places` (n, k): for each vector the places of the others, the nearest first; `cosines` (n, k) beside them."""

    places: NDArray[np.int64]
    cosines: Numbers


def nearest_of(vectors: NDArray[np.floating], count: int) -> Neighbours:
    """The `count` nearest others of every vector, or all others where there are fewer.

    Of equally near ones the earlier comes first. A vector of zeros has the cosine 0 with all.
    """
    equal = units(vectors)
    number = len(equal)
    count = max(0, min(count, number - 1))
    places = np.empty((number, count), dtype=np.int64)
    found = np.empty((number, count))
    for start in range(0, number, BLOCK):
        block = np.clip(equal[start : start + BLOCK] @ equal.T, -1.0, 1.0)
        rows = np.arange(len(block))
        block[rows, start + rows] = -np.inf  # none is its own neighbour
        order = np.argsort(-block, axis=1, kind="stable")[:, :count]
        places[start : start + BLOCK] = order
        found[start : start + BLOCK] = np.take_along_axis(block, order, axis=1)
    return Neighbours(places, found)
