"""Principal components: equal to scikit-learn's, and degenerate inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.interpret.embeddings import project

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
