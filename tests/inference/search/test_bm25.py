"""BM25 equals its formula, however postings are divided into chunks and segments."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.inference.search import bm25
from regard.inference.search.bm25 import Postings, find_words, fuse_ranks, search_bm25, words_of, write_postings
from regard.inference.search.exact import Ranking

TEXTS = ["the cat sat on the mat", "a dog", "the dog and the cat and the dog", "", "Straße in Köln", "dog dog dog dog"]


def formula(query: str, texts: list[str]) -> list[float]:
    """Written out as in the paper, word by word and text by text."""
    documents = [words_of(text) for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        score = 0.0
        for word in words_of(query):
            frequency = sum(word in other for other in documents)
            idf = math.log(1 + (len(documents) - frequency + 0.5) / (frequency + 0.5))
            count = document.count(word)
            score += idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(document) / mean)) if count else 0
        scores.append(score)
    return scores


def postings(folder: Path, texts: list[str]) -> Postings:
    folder.mkdir(exist_ok=True)
    assert list(write_postings(folder, texts)) == list(range(1, len(texts) + 1))
    return Postings(folder)


@pytest.mark.parametrize("query", ["dog", "the cat", "dog dog mat", "STRASSE", "unknown", "the unknown dog"])
@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_scores_are_those_of_the_formula(
    query: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25, "CHUNK", chunk)
    expected = formula(query, TEXTS)
    parts = [[postings(tmp_path / "all", TEXTS)]]
    parts += [[postings(tmp_path / "first", TEXTS[:2]), postings(tmp_path / "rest", TEXTS[2:])]]
    for one in parts:
        ranking = search_bm25(query, one, 10)
        found = dict(zip(ranking.positions.tolist(), ranking.scores.tolist(), strict=True))
        assert found == pytest.approx({row: score for row, score in enumerate(expected) if score > 0})
        assert ranking.positions.tolist() == sorted(found, key=lambda row: (-found[row], row))
        assert search_bm25(query, one, 1).positions.tolist() == ranking.positions[:1].tolist()


def test_deleted_rows_are_not_found(tmp_path: Path) -> None:
    part = postings(tmp_path, TEXTS)
    assert 5 not in search_bm25("dog", [part], 10, deleted=np.array([5])).positions


def test_words() -> None:
    assert words_of("Don't stop, it's 3.5 €! snake_case ÄÖ ﬁne") == (
        ["don", "t", "stop", "it", "s", "3", "5", "snake", "case", "äö", "fine"]
    )
    assert words_of("東京は") == ["東", "京", "は"]
    assert find_words("The dog, the DOG", ["dog"]) == [(4, 7), (13, 16)]


@given(st.text())
def test_the_offsets_of_words_are_those_of_the_text(text: str) -> None:
    spans = find_words(text, words_of(text))
    assert [words_of(text[start:end]) for start, end in spans] == [[word] for word in words_of(text)]


def test_ranks_are_fused_by_their_reciprocals() -> None:
    first = Ranking(np.array([4, 2, 9]), np.array([0.9, 0.8, 0.7]))
    second = Ranking(np.array([2, 4]), np.array([12.0, 3.0]))
    fused = fuse_ranks([first, second], 10)
    assert fused.positions.tolist() == [2, 4, 9]  # equal sums: in the order of the rows
    np.testing.assert_allclose(fused.scores, [1 / 61 + 1 / 62, 1 / 61 + 1 / 62, 1 / 63])
    assert fuse_ranks([first, second], 1).positions.tolist() == [2]
