"""Vectors as points in a plane: principal component analysis, and t-SNE or UMAP where their packages are installed."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError

Doubles = NDArray[np.float64]
Projection = Literal["pca", "tsne", "umap"]
PROJECTION_NAMES = {"pca": "principal component analysis", "tsne": "t-SNE", "umap": "UMAP"}


def project(vectors: NDArray[np.floating]) -> tuple[Doubles, Doubles]:
    """Principal component analysis: centered points (n, 2), and each component's share of the variance.

    The largest entry of each component is positive, since its sign has no meaning. Components beyond the rank of the
    vectors are 0.
    """
    exact = vectors.astype(np.float64)
    centered = exact - exact.mean(0)
    left, singular_values, right = np.linalg.svd(centered, full_matrices=False)
    points, explained = np.zeros((len(exact), 2)), np.zeros(2)
    # The difference of equal vectors is rounding noise, which has no meaningful direction.
    noise = np.finfo(np.float64).eps * max(exact.shape) * float(np.abs(exact).max(initial=0.0))
    rank = min(2, int((singular_values > noise).sum()))
    if rank:
        largest = np.abs(right[:rank]).argmax(1)
        signs = np.where(right[np.arange(rank), largest] < 0, -1.0, 1.0)
        points[:, :rank] = left[:, :rank] * singular_values[:rank] * signs
        explained[:rank] = singular_values[:rank] ** 2 / float((singular_values**2).sum())
    return points, explained


def project_onto_plane(vectors: NDArray[np.floating], projection: Projection, seed: int = 0) -> tuple[Doubles, Doubles]:
    """Points (n, 2), and the fraction of variance of each axis; t-SNE and UMAP, which are not linear, have none.

    InputError if the package of t-SNE (scikit-learn) or UMAP (umap-learn) is not installed.
    """
    if projection == "pca":
        return project(vectors)
    count = len(vectors)
    if count < 4:
        raise InputError(f"{projection} needs at least 4 sentences, and there are {count}; use the projection pca")
    try:
        if projection == "tsne":
            from sklearn.manifold import TSNE

            perplexity = min(30.0, (count - 1) / 3)
            method: Any = TSNE(perplexity=perplexity, init="random", metric="cosine", random_state=seed)
        else:
            from umap import UMAP  # type: ignore[import-not-found,import-untyped,unused-ignore]

            init = "spectral" if count > 15 else "random"  # a spectral layout of few points fails
            method = UMAP(n_neighbors=min(15, count - 1), metric="cosine", init=init, random_state=seed)
    except ImportError:
        package = {"tsne": "scikit-learn", "umap": "umap-learn"}[projection]
        raise InputError(
            f"the projection {projection} needs {package}, which is not installed: pip install {package}; "
            "the projection pca needs nothing"
        ) from None
    points = np.asarray(method.fit_transform(vectors), dtype=np.float64)
    return points - points.mean(0), np.zeros(0)
