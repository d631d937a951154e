"""Principal components: equal to scikit-learn's, and degenerate inputs; t-SNE and UMAP."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.interpret.projection import project, project_onto_plane

PCA = pytest.importorskip("sklearn.decomposition").PCA


@given(st.integers(3, 40), st.integers(2, 60), st.integers(0, 10_000))
def test_projection_equals_scikit_learn_up_to_sign(count: int, width: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32) + 3
    reference = PCA(n_components=2, svd_solver="full")
    expected = reference.fit_transform(vectors.astype(np.float64))
    points, explained = project(vectors)
    signs = np.sign((points * expected).sum(0))
    np.testing.assert_allclose(points * signs, expected, atol=1e-9)
    np.testing.assert_allclose(explained, reference.explained_variance_ratio_, atol=1e-12)


def test_hand_computed_case() -> None:
    """Four corners of a rectangle of 6 by 2 about (3, 1): all variance is in the plane, nine tenths along x."""
    points, explained = project(np.array([[0, 0, 7], [6, 0, 7], [0, 2, 7], [6, 2, 7]], dtype=np.float32))
    np.testing.assert_allclose(points, [[-3, -1], [3, -1], [-3, 1], [3, 1]], atol=1e-12)
    np.testing.assert_allclose(explained, [0.9, 0.1])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_line_has_no_second_component(scale: float) -> None:
    direction = np.random.default_rng(0).normal(size=30)
    points, explained = project(np.outer([-1.0, 0.5, 0.25, 0.25], direction) * scale)
    np.testing.assert_allclose(explained, [1, 0])
    assert not points[:, 1].any()
    expected = np.array([-1, 0.5, 0.25, 0.25]) * scale * np.linalg.norm(direction)
    np.testing.assert_allclose(np.abs(points[:, 0]), np.abs(expected))


def test_equal_vectors_are_one_point() -> None:
    vectors = np.repeat(np.random.default_rng(0).normal(size=(1, 9)), 7, axis=0)
    points, explained = project(vectors)
    assert not points.any() and not explained.any()
    assert not project(np.ones((1, 4)))[0].any()


def clusters() -> np.ndarray[Any, Any]:
    random = np.random.default_rng(0)
    centers = np.eye(3, 16) * 5
    return np.concatenate([center + random.normal(0, 0.2, (12, 16)) for center in centers])


def test_tsne_separates_clusters_and_has_no_shares_of_variance() -> None:
    pytest.importorskip("sklearn")
    points, explained = project_onto_plane(clusters(), "tsne", seed=1)
    again, _ = project_onto_plane(clusters(), "tsne", seed=1)
    assert points.shape == (36, 2) and len(explained) == 0
    np.testing.assert_allclose(points, again)
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1) + np.eye(36) * 1e9
    assert (distances.argmin(1) // 12 == np.arange(36) // 12).all()


def test_umap_uses_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    class UMAP:  # a stand-in, since umap-learn may not be installed
        def __init__(self, **options: Any) -> None:
            self.options = options

        def fit_transform(self, vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            assert self.options["n_neighbors"] == 15 and self.options["random_state"] == 7
            return vectors[:, :2]

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=UMAP))
    points, _ = project_onto_plane(clusters(), "umap", seed=7)
    np.testing.assert_allclose(points, clusters()[:, :2] - clusters()[:, :2].mean(0))


@pytest.mark.parametrize(
    ("name", "module", "package"), [("tsne", "sklearn", "scikit-learn"), ("umap", "umap", "umap-learn")]
)
def test_a_missing_package_is_named(name: Any, module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in [found for found in sys.modules if found.split(".")[0] == module] or [module]:
        monkeypatch.delitem(sys.modules, one, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=f"pip install {package}"):
        project_onto_plane(clusters(), name)
    with pytest.raises(InputError, match="at least 4 sentences"):
        project_onto_plane(clusters()[:3], name)
