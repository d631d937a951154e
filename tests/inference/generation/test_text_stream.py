"""Text as it streams: joined it is what the tokenizer decodes, in whole characters, cut before a stop string."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.inference.generation.text_generator import TextStream, token_text
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
    """Unigram with a sign for a space, as T5 has."""
    return unigram(tmp_path_factory.mktemp("unigram") / "vocabulary")


def stream(said: TextStream, ids: list[int]) -> list[str]:
    return [*(said.push(token) for token in ids), said.end()]


@given(data=st.data())
def test_joined_it_is_what_the_tokenizer_decodes(
    tokens: Tokenizer, pieces: Tokenizer, spaced: Tokenizer, data: st.DataObject
) -> None:
    """For any ids, valid bytes or not, special tokens among them, behind a text or not."""
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


def test_a_character_of_four_bytes_comes_at_once(tokens: Tokenizer) -> None:
    ids = tokens.encode("a😀b", add_special_tokens=False).ids
    assert len(ids) == 6
    assert stream(TextStream(tokens), ids) == ["a", "", "", "", "😀", "b", ""]
    assert stream(TextStream(tokens), ids[:3]) == ["a", "", "", "\ufffd"]


def test_words_come_with_their_spaces(pieces: Tokenizer) -> None:
    ids = pieces.encode("the films are good", add_special_tokens=False).ids
    assert [pieces.token(number) for number in ids] == ["the", "film", "##s", "are", "good"]
    assert stream(TextStream(pieces), ids) == ["the", " film", "s", " are", " good", ""]
    assert stream(TextStream(pieces, prompt_ids=ids[:2]), ids[2:]) == ["s", " are", " good", ""]


@given(data=st.data())
def test_a_stop_string_ends_the_text_wherever_tokens_end(tokens: Tokenizer, data: st.DataObject) -> None:
    """The first stop string to be complete cuts, and it makes no difference how the text comes in pieces."""
    text = data.draw(st.text("ab\n é", max_size=14))
    stops = data.draw(st.lists(st.text("ab\n é", min_size=1, max_size=4), max_size=3))
    complete = [(text.index(stop) + len(stop), -len(stop)) for stop in stops if stop in text]
    expected = text[: sum(min(complete))] if complete else text
    said = TextStream(tokens, stop_strings=stops)
    assert "".join(stream(said, tokens.encode(text, add_special_tokens=False).ids)) == expected
    assert said.stopped == bool(complete)


def test_text_before_a_possible_stop_string_is_held_back(tokens: Tokenizer) -> None:
    ids = tokens.encode("a\n\nQ", add_special_tokens=False).ids
    said = TextStream(tokens, stop_strings=["\n\nQ:"])
    assert [said.push(number) for number in ids] == ["a", "", "", ""]
    assert said.push(tokens.encode("x", add_special_tokens=False).ids[0]) == "\n\nQx"
    said = TextStream(tokens, stop_strings=["\n\nQ:"])
    assert stream(said, tokens.encode("a\n\nQ: b", add_special_tokens=False).ids) == ["a", *[""] * 7]
    assert said.stopped


@pytest.mark.parametrize(
    ("stops", "left"), [(["film", "i"], " f"), (["m", "film"], " "), (["lm", "m"], " fi"), (["films", "m"], " fil")]
)
def test_the_first_to_be_complete_cuts_also_within_a_token(tokens: Tokenizer, stops: list[str], left: str) -> None:
    assert TextStream(tokens, stop_strings=stops).push(tokens.id("Ġfilm")) == left


def test_held_back_text_is_returned_at_the_end(tokens: Tokenizer) -> None:
    assert stream(TextStream(tokens, stop_strings=["##"]), tokens.encode("a#", add_special_tokens=False).ids) == [
        "a",
        "",
        "#",
    ]


def test_a_stop_string_in_the_prompt_does_not_count(tokens: Tokenizer) -> None:
    before = tokens.encode("x#", add_special_tokens=False).ids
    said = TextStream(tokens, prompt_ids=before, stop_strings=["##"])
    assert "".join(stream(said, tokens.encode("#a", add_special_tokens=False).ids)) == "#a"


def test_spelling_one_token(tokens: Tokenizer, pieces: Tokenizer) -> None:
    assert token_text(tokens, tokens.id("Ġfilm")) == " film"
    half = tokens.encode("é", add_special_tokens=False).ids[0]
    assert tokens.token(half) == "Ã" and token_text(tokens, half) == r"\xC3"
    assert token_text(tokens, 0) == "<|endoftext|>"
    assert token_text(pieces, pieces.id("##s")) == "##s"
    assert token_text(tokens, tokens.size + 3) == f"<{tokens.size + 3}>"
