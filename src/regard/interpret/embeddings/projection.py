"""Vectors on a plane: principal components, and how much of the vectors' variance the plane keeps.

Knows arrays. Knows no text and no model. A component's sign means nothing; here its largest entry is positive.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Projection", "project"]

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Projection:
    """`points` (n, components), centred; `explained` is each component's share of the variance, from 0 to 1.

    Components beyond what the vectors vary in are all 0.
    """

    points: Numbers
    explained: Numbers

    def document(self) -> dict[str, object]:
        return {"points": np.round(self.points, 6).tolist(), "explained": np.round(self.explained, 6).tolist()}

    def like(self, other: Projection) -> Projection:
        """The same with the signs that bring the points nearest to those of another projection."""
        signs = np.where((self.points * other.points).sum(0) < 0, -1.0, 1.0)
        return Projection(self.points * signs, self.explained)


def project(vectors: NDArray[np.floating], *, components: int = 2) -> Projection:
    """Principal component analysis of vectors (n, width), in float64."""
    exact = vectors.astype(np.float64)
    centred = exact - exact.mean(0)
    left, sizes, right = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros((len(exact), components))
    explained = np.zeros(components)
    total = float((sizes**2).sum())
    # What is left of equal vectors is rounding: its direction would be noise shown as if it were something.
    noise = np.finfo(np.float64).eps * max(exact.shape) * float(np.abs(exact).max(initial=0.0))
    kept = min(components, int((sizes > noise).sum()))
    if kept:
        largest = np.abs(right[:kept]).argmax(1)
        signs = np.where(right[np.arange(kept), largest] < 0, -1.0, 1.0)
        points[:, :kept] = left[:, :kept] * sizes[:kept] * signs
        explained[:kept] = sizes[:kept] ** 2 / total
    return Projection(points, explained)
