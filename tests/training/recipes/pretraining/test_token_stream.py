"""Token streams: held-out text, ends of documents, and reading across shards."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regard.data.corpus import Corpus, build_corpus, train_tokenizer
from regard.errors import InputError
from regard.training.recipes.pretraining.token_stream import TokenStream
from tests.training.recipes.pretraining.texts import DOCUMENTS, FIRST, original_positions, token_stream

PIECES = st.integers(1, 5)


def assert_consistent(text: TokenStream) -> None:
    """Assert that the arrays describe the same tokens and no document spans two pieces."""
    assert text.starts.tolist() == np.cumsum([0, *map(len, text.pieces)]).tolist()
    assert all(len(piece) for piece in text.pieces)
    for array in (text.sentences, text.documents):
        assert array[0] == 0 and array[-1] == text.tokens
        assert all(start < stop for start, stop in pairwise(array.tolist()))
    assert set(text.starts.tolist()) <= set(text.documents.tolist()) <= set(text.sentences.tolist())


@given(DOCUMENTS, PIECES, st.floats(0, 0.5))
@example([[1], [1]], 1, 0.01)
@example([[1, 1]], 1, 0.5)
@example([[2]], 1, 0.01)
def test_both_parts_of_a_split_form_the_whole_text(documents: list[list[int]], pieces: int, fraction: float) -> None:
    text = token_stream([*documents, [1]], pieces=pieces)
    train, held_out = text.split(fraction)
    assert_consistent(train), assert_consistent(held_out)
    assert original_positions(train) + original_positions(held_out) == list(range(text.tokens))
    cut = {position + train.tokens for position in held_out.sentences.tolist()} | set(train.sentences.tolist())
    assert cut - {train.tokens} <= set(text.sentences.tolist())
    cut = {position + train.tokens for position in held_out.documents.tolist()} | set(train.documents.tolist())
    assert cut - {train.tokens} <= set(text.documents.tolist())


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=40, max_size=60), PIECES)
@example([*[[1]] * 39, [1, 5]], 1)
def test_a_split_holds_out_the_fewest_whole_documents(documents: list[list[int]], pieces: int) -> None:
    text = token_stream(documents, pieces=pieces)
    train, held_out = text.split(0.1)
    assert train.tokens in text.documents
    assert held_out.tokens >= 0.1 * text.tokens
    # Without its first document there would be too little text, or there is only one document.
    assert held_out.tokens - held_out.documents[1] < 0.1 * text.tokens + 1 or len(held_out.documents) == 3


def test_one_percent_is_held_out() -> None:
    text = token_stream([[5, 5]] * 500, pieces=3)
    train, held_out = text.split()
    assert (train.tokens, held_out.tokens) == (4950, 50)
    assert len(held_out.documents) - 1 == 5 and len(held_out.sentences) - 1 == 10


def test_two_documents_are_held_out_even_if_one_is_enough() -> None:
    train, held_out = token_stream([[50] * 10] * 20, pieces=2).split()
    assert (train.tokens, held_out.tokens) == (9000, 1000)
    assert held_out.documents.tolist() == [0, 500, 1000]


def test_the_only_document_is_cut_between_sentences() -> None:
    train, held_out = token_stream([[30, 30, 30, 5, 5]]).split(0.07)
    assert (train.tokens, held_out.tokens) == (90, 10)
    assert train.documents.tolist() == [0, 90] and held_out.documents.tolist() == [0, 10]
    assert held_out.sentences.tolist() == [0, 5, 10]


def test_the_only_sentence_is_cut_anywhere() -> None:
    train, held_out = token_stream([[100]]).split(0.25)
    assert (train.tokens, held_out.tokens) == (75, 25)
    train, held_out = token_stream([[100]]).split(0.0)
    assert (train.tokens, held_out.tokens) == (99, 1)


def test_a_long_last_document_is_held_out_in_part() -> None:
    train, held_out = token_stream([[10], [40, 40, 5, 5]]).split(0.05)
    assert (train.tokens, held_out.tokens) == (95, 5)
    assert train.documents.tolist() == [0, 10, 95]


def test_a_short_last_document_is_enough() -> None:
    train, held_out = token_stream([[95, 100], [1]]).split(0.01)
    assert (train.tokens, held_out.tokens) == (195, 1)


@pytest.mark.parametrize("documents", [[[2]], [[1, 1]], [[1], [1]]])
def test_two_tokens_can_be_split(documents: list[list[int]]) -> None:
    train, held_out = token_stream(documents).split()
    assert (train.tokens, held_out.tokens) == (1, 1)


def test_one_token_cannot_be_split() -> None:
    with pytest.raises(InputError, match="1 tokens, too few"):
        token_stream([[1]]).split()


@given(DOCUMENTS, PIECES)
def test_an_end_token_follows_each_document(documents: list[list[int]], pieces: int) -> None:
    before = token_stream(documents, pieces=pieces)
    text = before.with_end_tokens(7)
    assert_consistent(text)
    expected: list[int] = []
    sentences, starts, token = [], [], FIRST
    for document in documents:
        starts.append(len(expected))
        for size in document:
            sentences.append(len(expected))
            expected += range(token, token + size)
            token += size
        expected.append(7)
    assert [int(token) for piece in text.pieces for token in np.asarray(piece)] == expected
    assert text.sentences.tolist() == [*sentences, len(expected)]
    assert text.documents.tolist() == [*starts, len(expected)]
    assert text.pieces[0].dtype == before.pieces[0].dtype


@given(DOCUMENTS, PIECES, st.data())
def test_reading_a_range_of_tokens(documents: list[list[int]], pieces: int, data: st.DataObject) -> None:
    text = token_stream(documents, pieces=pieces)
    piece = data.draw(st.integers(0, len(text.pieces) - 1))
    first, last = int(text.starts[piece]), int(text.starts[piece + 1])
    start = data.draw(st.integers(first, last - 1))
    stop = data.draw(st.integers(start, last))
    assert text.read(start, stop).tolist() == list(range(FIRST + start, FIRST + stop))


def test_a_corpus_of_several_shards(tmp_path: Path) -> None:
    lines = [f"The garden of house {number} is old. It has {number} trees." for number in range(40)]
    (tmp_path / "text.txt").write_text("\n\n".join(lines), encoding="utf-8")
    tokenizer = train_tokenizer(lines, size=90)
    build_corpus(tmp_path / "text.txt", tmp_path / "corpus", tokenizer=tokenizer, shard_bytes=300)
    corpus = Corpus.open(tmp_path / "corpus")
    text = TokenStream.concatenate(corpus)
    assert_consistent(text)
    assert corpus.shards > 3 and len(text.pieces) == corpus.shards
    assert (len(text.documents) - 1, len(text.sentences) - 1) == (40, 80)
    assert text.tokens == corpus.tokens
    for number, (start, stop) in enumerate(pairwise(text.documents.tolist())):
        assert text.read(start, stop).tolist() == np.concatenate(corpus.document(number)).tolist()
        assert tokenizer.decode(text.read(start, stop)) == lines[number].lower()
    sentences = [sentence for number in range(40) for sentence in corpus.document(number)]
    for sentence, (start, stop) in zip(sentences, pairwise(text.sentences.tolist()), strict=True):
        assert text.read(start, stop).tolist() == sentence.tolist()
    twice = TokenStream.concatenate(corpus, corpus)
    assert_consistent(twice)
    assert twice.tokens == 2 * text.tokens
    for found, once in ((twice.sentences, text.sentences), (twice.documents, text.documents)):
        assert found.tolist() == [*once[:-1].tolist(), *(once + text.tokens).tolist()]
    assert twice.read(text.tokens, text.tokens + 5).tolist() == text.read(0, 5).tolist()
