"""Principal component analysis for plots, with the explained variance. The largest entry of each component is positive,
since its sign has no meaning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Projection:
    """`points` (n, components), centered; `explained` is the share of variance of each component, from 0 to 1.

    Components beyond the rank of the vectors are 0.
    """

    points: NDArray[np.float64]
    explained: NDArray[np.float64]

    def aligned_to(self, other: Projection) -> Projection:
        """The projection with the signs that bring its points nearest to those of another one."""
        signs = np.where((self.points * other.points).sum(0) < 0, -1.0, 1.0)
        return Projection(self.points * signs, self.explained)


def project(vectors: NDArray[np.floating], *, components: int = 2) -> Projection:
    """Principal component analysis of vectors (n, width), in float64."""
    exact = vectors.astype(np.float64)
    centered = exact - exact.mean(0)
    left, singular_values, right = np.linalg.svd(centered, full_matrices=False)
    points = np.zeros((len(exact), components))
    explained = np.zeros(components)
    # The difference of equal vectors is rounding noise, which has no meaningful direction.
    noise = np.finfo(np.float64).eps * max(exact.shape) * float(np.abs(exact).max(initial=0.0))
    rank = min(components, int((singular_values > noise).sum()))
    if rank:
        largest = np.abs(right[:rank]).argmax(1)
        signs = np.where(right[np.arange(rank), largest] < 0, -1.0, 1.0)
        points[:, :rank] = left[:, :rank] * singular_values[:rank] * signs
        explained[:rank] = singular_values[:rank] ** 2 / float((singular_values**2).sum())
    return Projection(points, explained)
