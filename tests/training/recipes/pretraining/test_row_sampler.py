"""The order of rows: independent of the request, one pass over the text in each epoch, and correct pairs."""

from __future__ import annotations

from itertools import chain
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from regard.errors import InputError
from regard.training.recipes.pretraining.row_sampler import (
    FOLLOWS,
    OTHER,
    RowSampler,
    RowSpans,
    SentencePairs,
    TextChunks,
)
from regard.training.recipes.pretraining.token_stream import TokenStream
from tests.training.recipes.pretraining.texts import DOCUMENTS, token_stream

SEEDS = st.integers(0, (1 << 63) - 1)
BOOK = [[7, 9, 11, 8, 5]] * 30  # 30 documents of 40 tokens


def listed(spans: RowSpans) -> list[Any]:
    return [spans.first.tolist(), spans.second.tolist(), spans.labels.tolist()]


def joined(parts: list[RowSpans]) -> list[Any]:
    return [list(chain.from_iterable(lists)) for lists in zip(*map(listed, parts), strict=True)]


def document_of(text: TokenStream, position: int) -> int:
    return int(np.searchsorted(text.documents, position, side="right")) - 1


def sizes(spans: RowSpans) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.diff(spans.first)[:, 0], np.diff(spans.second)[:, 0]


def inside_documents(text: TokenStream, spans: RowSpans) -> None:
    """Assert that no text of a row is empty or continues into another document."""
    for start, stop in [*spans.first.tolist(), *spans.second.tolist()]:
        assert 0 <= start < stop <= text.tokens
        assert document_of(text, start) == document_of(text, stop - 1)


@given(SEEDS, st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(0, 200), st.sampled_from("sfnot"))
@example((1 << 63) - 1, [3, 3], 0, "n")
def test_a_row_does_not_depend_on_the_request(seed: int, counts: list[int], first: int, kind: str) -> None:
    def rows() -> RowSampler:
        if kind == "s":
            return TextChunks(token_stream(BOOK, pieces=3), tokens=12, seed=seed)
        short = 0.0 if kind == "f" else 0.3
        order: Literal["next", "order"] = "order" if kind == "o" else "next"
        return SentencePairs(token_stream(BOOK, pieces=3), tokens=12, seed=seed, kind=order, short=short)

    whole, parted, last = rows().spans(first, sum(counts)), [], rows()
    at, sampler = first, rows()
    for size in counts:
        parted.append(sampler.spans(at, size))
        at += size
    assert listed(whole) == joined(parted)
    backwards = [last.spans(row, 1) for row in reversed(range(first, at))]
    assert listed(whole) == joined(backwards[::-1])


@pytest.mark.parametrize("seeds", [(0, 1), (1, (1 << 63) - 1), ((1 << 63) - 2, (1 << 63) - 1)])
def test_every_seed_has_its_own_order(seeds: tuple[int, int]) -> None:
    """This includes large seeds that are equal as floats."""
    for make in (TextChunks, SentencePairs):
        one, other = (make(token_stream(BOOK), tokens=12, seed=seed) for seed in seeds)
        assert listed(one.spans(0, 50)) != listed(other.spans(0, 50))
    one, other = (SentencePairs(token_stream(BOOK), tokens=12, seed=seed) for seed in seeds)
    assert one.spans(0, 50).labels.tolist() != other.spans(0, 50).labels.tolist()


@given(DOCUMENTS, st.integers(1, 4), st.integers(2, 20), SEEDS)
def test_chunks_are_read_about_once_an_epoch(documents: list[list[int]], pieces: int, tokens: int, seed: int) -> None:
    text = token_stream(documents, pieces=pieces)
    assume(max(np.diff(text.starts)) >= tokens)
    rows = TextChunks(text, tokens=tokens, seed=seed)
    read = np.zeros((2, text.tokens), dtype=int)
    for epoch in (0, 1):
        spans = rows.spans(epoch * rows.epoch, rows.epoch)
        for start, stop in spans.first.tolist():
            assert stop - start == tokens
            piece = np.searchsorted(text.starts, start, side="right") - 1
            assert stop <= text.starts[piece + 1]
            read[epoch, start:stop] += 1
        assert not spans.second.any()
    assert read.max() == 1  # never twice
    for start, stop in zip(text.starts[:-1], text.starts[1:], strict=True):
        missed = (stop - start) - read[:, start:stop].sum(axis=1)
        assert (missed < (2 * tokens if stop - start >= tokens else tokens)).all()


def test_every_position_is_read_in_some_epoch() -> None:
    rows = TextChunks(token_stream([[100]]), tokens=10, seed=0)
    read = {start for start, _ in rows.spans(0, 200 * rows.epoch).first.tolist()}
    assert read == set(range(91))


def test_each_epoch_has_a_new_order_and_a_new_grid() -> None:
    rows = TextChunks(token_stream(BOOK), tokens=12, seed=0)
    epochs = [rows.spans(number * rows.epoch, rows.epoch).first[:, 0] for number in range(6)]
    assert len({tuple(starts) for starts in epochs}) == 6
    assert len({int(starts.min()) for starts in epochs}) > 1
    for starts in epochs:
        assert (np.diff(np.sort(starts)) == 12).all()  # the grid
        assert not (np.diff(starts) > 0).all()  # is not read from left to right


def test_a_text_of_one_row() -> None:
    rows = TextChunks(token_stream([[12]]), tokens=12, seed=0)
    assert rows.epoch == 1
    assert rows.spans(5, 2).first.tolist() == [[0, 12], [0, 12]]


def test_a_text_too_short_for_a_row_is_refused() -> None:
    with pytest.raises(InputError, match=r"11 tokens, too few for one row of 12.*data\.max_length"):
        TextChunks(token_stream([[11]]), tokens=12, seed=0)


@given(DOCUMENTS, st.integers(1, 4), st.integers(2, 20), SEEDS, st.sampled_from([0.0, 0.2, 1.0]))
@example([[1], [1]], 1, 5, 0, 0.2)
@example([[1], [2, 3]], 2, 5, 0, 1.0)
@example([[9], [9], [1]], 1, 9, 0, 0.0)
def test_next_pairs_match_their_labels(
    documents: list[list[int]], pieces: int, tokens: int, seed: int, short: float
) -> None:
    text = token_stream([*documents, [3, 4]], pieces=pieces)
    try:
        rows = SentencePairs(text, tokens=tokens, seed=seed, short=short)
    except InputError:
        assume(False)
    spans = rows.spans(0, 40)
    inside_documents(text, spans)
    first, second = sizes(spans)
    assert (first + second <= tokens).all()
    if rows.full:
        assert (first + second == tokens).all()
    for one, two, label in zip(*listed(spans), strict=True):
        home, other = document_of(text, one[0]), document_of(text, two[0])
        assert home == other if label == FOLLOWS else home != other
        assert label == OTHER or two[0] == one[1]


@given(DOCUMENTS, st.integers(1, 4), st.integers(2, 20), SEEDS, st.sampled_from([0.0, 0.2, 1.0]))
@example([[1], [1], [2]], 3, 5, 0, 0.2)
@example([[20], [1], [4]], 1, 20, 0, 0.0)
def test_order_pairs_match_their_labels(
    documents: list[list[int]], pieces: int, tokens: int, seed: int, short: float
) -> None:
    text = token_stream(documents, pieces=pieces)
    try:
        rows = SentencePairs(text, tokens=tokens, seed=seed, kind="order", short=short)
    except InputError:
        assume(False)
    spans = rows.spans(0, 40)
    inside_documents(text, spans)
    first, second = sizes(spans)
    assert (first + second == tokens).all() if rows.full else (first + second <= tokens).all()
    for one, two, label in zip(*listed(spans), strict=True):
        early, late = (one, two) if label == FOLLOWS else (two, one)
        assert early[1] == late[0] and document_of(text, one[0]) == document_of(text, two[0])


@pytest.mark.parametrize("kind", ["next", "order"])
@pytest.mark.parametrize("short", [0.0, 0.3])
@pytest.mark.parametrize("documents", [BOOK, [*BOOK, *[[3]] * 60], [[50], *[[40]] * 20, *[[1]] * 30]])
def test_half_of_the_pairs_are_true(kind: Literal["next", "order"], short: float, documents: list[list[int]]) -> None:
    """This also holds if some documents are too short for a true pair."""
    labels = SentencePairs(token_stream(documents), tokens=12, seed=3, kind=kind, short=short).spans(0, 4000).labels
    assert abs((labels == FOLLOWS).mean() - 0.5) < 0.04


def test_full_pairs_are_cut_between_sentences_of_all_of_the_text() -> None:
    text = token_stream(BOOK)
    rows = SentencePairs(text, tokens=20, seed=0)
    spans = rows.spans(0, 3000)
    sentences = set(text.sentences.tolist())
    assert {stop for _, stop in spans.first.tolist()} == sentences - set(text.documents.tolist())
    true = spans.labels == FOLLOWS
    assert {start for start, _ in spans.second[true].tolist()} <= sentences
    read = np.zeros(text.tokens, dtype=int)
    for start, stop in spans.first[true].tolist() + spans.second[true].tolist():
        read[start:stop] += 1
    assert read[:-20].min() > 0  # the last row covers the end of a piece


def test_a_false_b_comes_from_anywhere_else() -> None:
    """Every sentence of every other document can start it if enough text follows, in proportion to its length."""
    text = token_stream([[4, 6], [10, 30], [4, 6]])
    rows = SentencePairs(text, tokens=4, seed=0, short=1e-9)
    spans = rows.spans(0, 6000)
    false = spans.labels == OTHER
    for home in range(3):
        chosen = [document_of(text, position) for position in spans.first[false, 0]]
        starts = spans.second[false, 0][np.array(chosen) == home]
        others = np.array([document_of(text, position) for position in starts])
        weights = np.diff(text.documents) * (np.arange(3) != home)
        found = np.bincount(others, minlength=3) / len(others)
        assert np.abs(found - weights / weights.sum()).max() < 4 / np.sqrt(len(others))
    assert set(spans.second[false, 0].tolist()) >= {0, 4, 10, 20, 50, 54}


def test_a_sentence_longer_than_a_row_is_read_to_its_end() -> None:
    text = token_stream([[100], [100]])
    rows = SentencePairs(text, tokens=10, seed=0)
    spans = rows.spans(0, 4000)
    starts = {start for start, _ in spans.first.tolist()}
    assert starts >= set(range(10, 90)) | set(range(110, 190))
    assert len({start for start, _ in spans.second[spans.labels == OTHER].tolist()}) > 100


def test_short_pairs_are_one_sentence_a_side() -> None:
    documents = [[3, 4, 5], [6], [2, 7], [1], [5, 5, 5, 5]]
    text = token_stream(documents, pieces=2)
    spans = SentencePairs(text, tokens=30, seed=0, short=1.0).spans(0, 2000)
    whole = set(zip(text.sentences[:-1].tolist(), text.sentences[1:].tolist(), strict=True))
    (alone,) = [pair for pair in whole if pair[1] - pair[0] == 6]
    halves = (alone[0], alone[0] + 3), (alone[0] + 3, alone[1])
    seen = set()
    for one, two, label in zip(*listed(spans), strict=True):
        assert tuple(one) in {*whole, halves[0]} - {alone}
        assert tuple(two) in ({*whole, halves[1]} - {alone} if label == FOLLOWS else whole)
        seen |= {tuple(one), tuple(two)}
    assert seen == {*whole, *halves}


def test_short_and_long_pairs_have_their_proportions() -> None:
    spans = SentencePairs(token_stream([[5] * 40] * 5), tokens=60, seed=0, short=0.25).spans(0, 4000)
    first, second = sizes(spans)
    assert abs((first + second == 10).mean() - 0.25) < 0.03
    assert abs((first + second == 60).mean() - 0.75) < 0.03


def test_a_short_pair_too_long_for_a_row_keeps_the_middle() -> None:
    spans = SentencePairs(token_stream([[20, 20], [20, 3]]), tokens=10, seed=0, short=1.0, kind="order").spans(0, 200)
    early = np.where((spans.labels == FOLLOWS)[:, None], spans.first, spans.second)
    late = np.where((spans.labels == FOLLOWS)[:, None], spans.second, spans.first)
    assert set(map(tuple, early.tolist())) == {(15, 20), (53, 60)}
    assert set(map(tuple, late.tolist())) == {(20, 25), (60, 63)}


def test_all_of_many_tiny_documents_are_read() -> None:
    """Even if all of them together are shorter than a row."""
    text = token_stream([[1, 2]] * 10)
    spans = SentencePairs(text, tokens=100, seed=0, short=0.1).spans(0, 500)
    assert {document_of(text, start) for start, _ in spans.first.tolist()} == set(range(10))
    assert {document_of(text, start) for start, _ in spans.second.tolist()} == set(range(10))


def test_documents_of_one_token_have_no_true_pair() -> None:
    spans = SentencePairs(token_stream([[1]] * 20), tokens=10, seed=0, short=0.5).spans(0, 100)
    assert (spans.labels == OTHER).all()
    assert (np.diff(spans.first) == 1).all() and (np.diff(spans.second) == 1).all()


@pytest.mark.parametrize("short", [0.0, 0.1])
def test_next_pairs_of_one_document_are_refused(short: float) -> None:
    text = token_stream([[10] * 20])
    with pytest.raises(InputError, match=r"one document.*blank line .*objective\.sentence_pairs"):
        SentencePairs(text, tokens=12, seed=0, short=short)
    SentencePairs(text, tokens=12, seed=0, kind="order", short=short)


@pytest.mark.parametrize("kind", ["next", "order"])
def test_full_rows_are_refused_if_documents_are_too_short(kind: Literal["next", "order"]) -> None:
    text = token_stream([[4, 5]] * 15 + [[12]] * 20)
    with pytest.raises(InputError, match=r"36% of the text.*fewer than 12 tokens.*short_seq_prob"):
        SentencePairs(text, tokens=12, seed=0, kind=kind)
    SentencePairs(text, tokens=12, seed=0, kind=kind, short=0.1).spans(0, 10)


def test_false_pairs_need_two_documents_that_fill_a_row() -> None:
    text = token_stream([[100], [5]])
    with pytest.raises(InputError, match=r"1 documents of at least 12 tokens, .*need 2"):
        SentencePairs(text, tokens=12, seed=0)
    SentencePairs(text, tokens=12, seed=0, short=0.1).spans(0, 10)


def test_order_needs_a_document_of_two_tokens() -> None:
    with pytest.raises(InputError, match="has 0 documents of at least 2 tokens, and such pairs need 1"):
        SentencePairs(token_stream([[1], [1]]), tokens=12, seed=0, kind="order", short=0.1)
