"""Exact search equals numpy's argsort and faiss's flat index; equal scores are in the order of the rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.inference.search import exact
from regard.inference.search.exact import Ranking, search_exact


def normalized(rows: int, width: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def by_numpy(query: np.ndarray, vectors: np.ndarray, top: int) -> np.ndarray:
    scores = vectors.astype(np.float64) @ query.astype(np.float64)
    return np.argsort(-scores, kind="stable")[:top]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact.blocks, "__defaults__", (100,))
    monkeypatch.setattr(exact, "QUERY_BATCH", 3)


@pytest.mark.parametrize("top", [1, 10, 150, 2000])
def test_the_rows_are_those_of_argsort(top: int) -> None:
    vectors, queries = normalized(1017, 24), normalized(7, 24, seed=1)
    found = search_exact(queries, vectors, top)
    for query, ranking in zip(queries, found, strict=True):
        np.testing.assert_array_equal(ranking.positions, by_numpy(query, vectors, top))
        expected = vectors[ranking.positions].astype(np.float64) @ query.astype(np.float64)
        np.testing.assert_allclose(ranking.scores, expected, atol=1e-12)


def test_the_rows_are_those_of_a_flat_index_of_faiss() -> None:
    faiss = pytest.importorskip("faiss")
    vectors, queries = normalized(1017, 24), normalized(5, 24, seed=2)
    flat = faiss.IndexFlatIP(24)
    flat.add(vectors)
    scores, positions = flat.search(queries, 10)
    for ranking, expected, values in zip(search_exact(queries, vectors, 10), positions, scores, strict=True):
        np.testing.assert_array_equal(ranking.positions, expected)
        np.testing.assert_allclose(ranking.scores, values, atol=1e-5)


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 400), top=st.integers(1, 40))
def test_ties_are_in_the_order_of_the_rows(seed: int, rows: int, top: int) -> None:
    generator = np.random.default_rng(seed)
    vectors = generator.integers(-1, 2, (rows, 3)).astype(np.float32)  # many rows are equal
    queries = generator.integers(-1, 2, (4, 3)).astype(np.float32)
    for query, ranking in zip(queries, search_exact(queries, vectors, top), strict=True):
        np.testing.assert_array_equal(ranking.positions, by_numpy(query, vectors, top))


def test_copies_of_a_row_have_one_score() -> None:
    vectors = normalized(350, 24)
    vectors[[5, 199, 202, 349]] = vectors[101]
    (ranking,) = search_exact(vectors[101:102], vectors, 5)
    np.testing.assert_array_equal(ranking.positions, [5, 101, 199, 202, 349])
    assert len(set(ranking.scores)) == 1


def test_deleted_rows_are_not_found() -> None:
    vectors, queries = normalized(350, 8), normalized(4, 8, seed=1)
    deleted = np.arange(0, 350, 2)
    odd = np.arange(1, 350, 2)
    for query, ranking in zip(queries, search_exact(queries, vectors, 20, deleted=deleted), strict=True):
        np.testing.assert_array_equal(ranking.positions, odd[by_numpy(query, vectors[odd], 20)])
    (nothing,) = search_exact(queries[:1], vectors, 5, deleted=np.arange(350))
    assert len(nothing.positions) == 0


def test_a_query_is_found_the_same_alone_and_in_a_batch() -> None:
    vectors, queries = normalized(1000, 16), normalized(9, 16, seed=3)
    together = search_exact(queries, vectors, 10)
    torch.set_num_threads(2)
    alone = [search_exact(queries[number : number + 1], vectors, 10)[0] for number in range(9)]
    torch.set_num_threads(1)
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one.positions, other.positions)
        np.testing.assert_array_equal(one.scores, other.scores)


def test_merging_keeps_the_best() -> None:
    first = Ranking(np.array([1, 3]), np.array([0.9, 0.5]))
    second = Ranking(np.array([0, 7]), np.array([0.5, 0.4]))
    merged = Ranking.merge([first, second], 3)
    assert merged.positions.tolist() == [1, 0, 3]
