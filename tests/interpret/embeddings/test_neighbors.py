"""Nearest neighbors against a brute-force comparison of all pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard.interpret.embeddings as module
from regard.interpret.embeddings import cosine_similarity, nearest_neighbors


def cosine(a: list[float], b: list[float]) -> float:
    lengths = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(x * x for x in b))
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0


@given(st.integers(1, 30), st.integers(1, 8), st.integers(1, 40), st.integers(0, 10_000))
def test_neighbors_equal_a_comparison_of_every_pair(count: int, width: int, limit: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    rows = vectors.astype(np.float64).tolist()
    indices, cosines = nearest_neighbors(vectors, limit)
    assert indices.shape == cosines.shape == (count, min(limit, count - 1))
    for index, row in enumerate(rows):
        values = {other: cosine(row, rows[other]) for other in range(count) if other != index}
        expected = sorted(values.values(), reverse=True)[:limit]
        np.testing.assert_allclose(cosines[index], expected, atol=1e-12)
        # By value, not by index: in one dimension all cosines are 1 or -1, and rounding determines the order.
        np.testing.assert_allclose([values[other] for other in indices[index]], expected, atol=1e-12)
        assert len({*indices[index].tolist(), index}) == len(expected) + 1


def test_hand_computed_case() -> None:
    vectors = np.array([[1, 0], [3, 4], [0, 2], [-1, 0]], dtype=np.float32)
    indices, cosines = nearest_neighbors(vectors, 2)
    assert indices.tolist() == [[1, 2], [2, 0], [1, 0], [2, 1]]
    np.testing.assert_allclose(cosines, [[0.6, 0], [0.8, 0.6], [0.8, 0], [0, -0.6]], atol=1e-15)
    np.testing.assert_allclose(cosine_similarity(vectors)[1], [0.6, 1, 0.8, -0.6])


def test_ties_zero_vectors_and_duplicates() -> None:
    indices, cosines = nearest_neighbors(np.array([[0, 0], [2, 0], [4, 0], [0, 0]]), 3)
    assert indices.tolist() == [[1, 2, 3], [2, 0, 3], [1, 0, 3], [0, 1, 2]]
    assert cosines.tolist() == [[0, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0]]


def test_the_block_size_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(1).normal(size=(50, 6))
    whole = nearest_neighbors(vectors, 4)
    monkeypatch.setattr(module, "BLOCK_SIZE", 7)
    parts = nearest_neighbors(vectors, 4)
    assert (whole[0] == parts[0]).all()
    np.testing.assert_allclose(whole[1], parts[1], atol=1e-15)
