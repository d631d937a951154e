"""Token axes: the word and the text of each token, for different tokenizers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard.interpret.attention.maps as token_axis
from regard.interpret.attention.maps import TokenAxis
from regard.text import Tokenizer
from tests.inference.folders import byte_level, tiny_roberta
from tests.inference.generation.folders import unigram


@pytest.fixture(scope="module")
def words(tiny_bert_folder: Path) -> Tokenizer:
    return Tokenizer.open(tiny_bert_folder)


@pytest.fixture(scope="module")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_level(tmp_path_factory.mktemp("bytes") / "x", specials=["<|endoftext|>"], kind="gpt2")


def test_subwords_share_a_word_and_special_tokens_have_their_own(words: Tokenizer) -> None:
    side = token_axis.axis_of_encoding(words, words.encode("films, it", "it is"))
    assert side.tokens == ("[CLS]", "film", "##s", ",", "it", "[SEP]", "it", "is", "[SEP]")
    assert side.words == (0, 1, 1, 2, 3, 4, 5, 6, 7)
    assert side.segments == (0, 0, 0, 0, 0, 0, 1, 1, 1)


def test_equal_words_on_both_sides_of_a_text_boundary_stay_separate(words: Tokenizer) -> None:
    side = token_axis.axis_of_encoding(words, words.encode("it", "it"))
    assert side.words == (0, 1, 2, 3, 4)


def test_two_texts_without_segment_ids(tmp_path: Path) -> None:
    roberta = Tokenizer.open(tiny_roberta(tmp_path))
    side = token_axis.axis_of_encoding(roberta, roberta.encode("the film", "good day"))
    first = [token for token, part in zip(side.tokens, side.segments, strict=True) if part == 0]
    assert first == ["<s>", "the", " film", "</s>"]
    assert side.tokens[len(first)] == "</s>"
    alone = token_axis.axis_of_encoding(roberta, roberta.encode("the film"))
    assert set(alone.segments) == {0}


def test_white_space_tokens_are_shown_as_symbols(byte_tokenizer: Tokenizer) -> None:
    text = "the  film\n\tgood ▁"
    side = token_axis.axis_of_encoding(byte_tokenizer, byte_tokenizer.encode(text))
    half = ("\\xE2", "\\x96", "\\x81")  # the bytes of a character that is not in the vocabulary
    assert side.tokens == ("the", "␣", " film", "⏎", "⇥", "good", "␣", *half)
    assert token_axis.axis_of_ids(byte_tokenizer, byte_tokenizer.encode(text).ids, special=0).tokens == side.tokens


def test_sentencepiece_space_as_its_own_token(tmp_path: Path) -> None:
    pieces = unigram(tmp_path)
    encoding = pieces.encode("the x")
    assert encoding.tokens == ["▁the", "▁", "x", "</s>"]
    assert token_axis.axis_of_encoding(pieces, encoding).tokens == ("the", "␣", "x", "</s>")


def test_text_that_contains_the_sentencepiece_space_character(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁", "x"]), "utf-8")
    pieces = Tokenizer.open(tmp_path)
    assert token_axis.axis_of_encoding(pieces, pieces.encode("x ▁")).tokens == ("[CLS]", "x", "▁", "[SEP]")


def test_decoder_inputs_are_shifted_right() -> None:
    shifted = token_axis.shift_right(
        "<s>", TokenAxis(("ein", " Hund", "</s>"), (0, 1, 2), (0, 0, 0), (False, False, True))
    )
    assert shifted == TokenAxis(("<s>", "ein", " Hund"), (0, 1, 2), (0, 0, 0), (True, False, False))


def test_unequal_lengths_are_rejected() -> None:
    with pytest.raises(ValueError, match="2 tokens, 1 words, 2 segments"):
        TokenAxis(("a", "b"), (0,), (0, 0))


@given(text=st.text(min_size=1, max_size=30))
def test_axis_of_random_texts(byte_tokenizer: Tokenizer, words: Tokenizer, text: str) -> None:
    for tokenizer in (byte_tokenizer, words):
        found = tokenizer.encode(text)
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        for side in (
            token_axis.axis_of_encoding(tokenizer, found),
            token_axis.axis_of_ids(tokenizer, [*ids, 0], special=1),
        ):
            assert all(token.strip() for token in side.tokens)
            assert list(side.words) == sorted(side.words)
            assert not side.words or side.words[0] == 0
            assert set(side.words) == set(range(len(set(side.words))))
