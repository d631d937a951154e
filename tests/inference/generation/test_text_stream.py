"""Streamed text: joined it equals the decoded text, in whole characters, cut before a stop string."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.inference.generation.text_generator import TextStream, token_bytes, token_text
from regard.text import Tokenizer
from tests.inference.folders import byte_level
from tests.inference.generation.folders import unigram


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Bytes and a few words."""
    return byte_level(tmp_path_factory.mktemp("bytes") / "vocabulary", specials=["<|endoftext|>"], kind="gpt2")


@pytest.fixture(scope="module")
def pieces(tiny_bert_folder: Path) -> Tokenizer:
    """WordPiece."""
    return Tokenizer.open(tiny_bert_folder)


@pytest.fixture(scope="module")
def spaced(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Unigram with a marker for a space, like T5's tokenizer."""
    return unigram(tmp_path_factory.mktemp("unigram") / "vocabulary")


def stream(text_stream: TextStream, ids: list[int]) -> list[str]:
    return [*(text_stream.push(token) for token in ids), text_stream.end()]


@given(data=st.data())
def test_joined_pieces_equal_the_decoded_text(
    tokens: Tokenizer, pieces: Tokenizer, spaced: Tokenizer, data: st.DataObject
) -> None:
    """For any ids: valid bytes or not, with special tokens, with or without a preceding text."""
    tokenizer = data.draw(st.sampled_from([tokens, pieces, spaced]))
    ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1), max_size=12))
    before = tokenizer.encode(data.draw(st.sampled_from(["", "the film", "a day é"])), add_special_tokens=False).ids
    expected = tokenizer.decode([*before, *ids])[len(tokenizer.decode(before)) :]
    assert "".join(stream(TextStream(tokenizer, prompt_ids=before), ids)) == expected


@given(text=st.text(max_size=8))
def test_never_half_a_character(tokens: Tokenizer, text: str) -> None:
    ids = tokens.encode(text, add_special_tokens=False).ids
    parts = stream(TextStream(tokens), ids)
    assert "".join(parts) == text
    assert "\ufffd" in text or not any("\ufffd" in part for part in parts)


def test_a_character_of_four_bytes_is_emitted_at_once(tokens: Tokenizer) -> None:
    ids = tokens.encode("a😀b", add_special_tokens=False).ids
    assert len(ids) == 6
    assert stream(TextStream(tokens), ids) == ["a", "", "", "", "😀", "b", ""]
    assert stream(TextStream(tokens), ids[:3]) == ["a", "", "", "\ufffd"]


def test_words_are_emitted_with_their_spaces(pieces: Tokenizer) -> None:
    ids = pieces.encode("the films are good", add_special_tokens=False).ids
    assert [pieces.token(number) for number in ids] == ["the", "film", "##s", "are", "good"]
    assert stream(TextStream(pieces), ids) == ["the", " film", "s", " are", " good", ""]
    assert stream(TextStream(pieces, prompt_ids=ids[:2]), ids[2:]) == ["s", " are", " good", ""]


@given(data=st.data())
def test_a_stop_string_ends_the_text_wherever_tokens_end(tokens: Tokenizer, data: st.DataObject) -> None:
    """The first complete stop string cuts the text, however the text is split into pieces."""
    text = data.draw(st.text("ab\n é", max_size=14))
    stops = data.draw(st.lists(st.text("ab\n é", min_size=1, max_size=4), max_size=3))
    complete = [(text.index(stop) + len(stop), -len(stop)) for stop in stops if stop in text]
    expected = text[: sum(min(complete))] if complete else text
    text_stream = TextStream(tokens, stop_strings=stops)
    assert "".join(stream(text_stream, tokens.encode(text, add_special_tokens=False).ids)) == expected
    assert text_stream.stopped == bool(complete)


def test_text_before_a_possible_stop_string_is_held_back(tokens: Tokenizer) -> None:
    ids = tokens.encode("a\n\nQ", add_special_tokens=False).ids
    text_stream = TextStream(tokens, stop_strings=["\n\nQ:"])
    assert [text_stream.push(number) for number in ids] == ["a", "", "", ""]
    assert text_stream.push(tokens.encode("x", add_special_tokens=False).ids[0]) == "\n\nQx"
    text_stream = TextStream(tokens, stop_strings=["\n\nQ:"])
    assert stream(text_stream, tokens.encode("a\n\nQ: b", add_special_tokens=False).ids) == ["a", *[""] * 7]
    assert text_stream.stopped


@pytest.mark.parametrize(
    ("stops", "left"), [(["film", "i"], " f"), (["m", "film"], " "), (["lm", "m"], " fi"), (["films", "m"], " fil")]
)
def test_the_first_complete_stop_string_cuts_even_within_a_token(
    tokens: Tokenizer, stops: list[str], left: str
) -> None:
    assert TextStream(tokens, stop_strings=stops).push(tokens.id("Ġfilm")) == left


def test_held_back_text_is_returned_at_the_end(tokens: Tokenizer) -> None:
    assert stream(TextStream(tokens, stop_strings=["##"]), tokens.encode("a#", add_special_tokens=False).ids) == [
        "a",
        "",
        "#",
    ]


def test_a_stop_string_in_the_prompt_is_ignored(tokens: Tokenizer) -> None:
    before = tokens.encode("x#", add_special_tokens=False).ids
    text_stream = TextStream(tokens, prompt_ids=before, stop_strings=["##"])
    assert "".join(stream(text_stream, tokens.encode("#a", add_special_tokens=False).ids)) == "#a"


def test_the_text_of_one_token(tokens: Tokenizer, pieces: Tokenizer) -> None:
    assert token_text(tokens, tokens.id("Ġfilm")) == " film"
    half = tokens.encode("é", add_special_tokens=False).ids[0]
    assert tokens.token(half) == "Ã" and token_text(tokens, half) == r"\xC3"
    assert token_text(tokens, 0) == "<|endoftext|>"
    assert token_text(pieces, pieces.id("##s")) == "##s"
    assert token_text(tokens, tokens.size + 3) == f"<{tokens.size + 3}>"


@pytest.mark.parametrize("text", ["the film", "a 😀 day €, naïve", "Как дела", " the  film"])
def test_the_bytes_of_tokens_are_those_of_their_text(tokens: Tokenizer, spaced: Tokenizer, text: str) -> None:
    ids = tokens.encode(text).ids
    assert b"".join(token_bytes(tokens, token) for token in ids) == text.encode()
    words = spaced.encode("the film", add_special_tokens=False).ids
    assert b"".join(token_bytes(spaced, token) for token in words) == b" the film"  # the marker stands for a space
    assert token_bytes(tokens, tokens.id("<|endoftext|>")) == b"<|endoftext|>"
    assert token_bytes(tokens, tokens.size + 3) == token_text(tokens, tokens.size + 3).encode()
