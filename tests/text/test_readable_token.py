"""Byte-level tokens as readable text and hex."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from regard.text.tokenizer import readable_token

symbols = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("Ã", r"\xC3"),
        ("ĠÃ", r" \xC3"),
        ("âĢ", r"\xE2\x80"),
        ("âĢĻs", "\u2019s"),
        ("©Ġa", r"\xA9 a"),
        ("Ċ", "\n"),
        ("<0xC3>", r"\xC3"),
        ("<0x0A>", "\n"),
        ("\u2581the", "\u2581the"),
        ("\ufffd", "\ufffd"),
    ],
)
def test_handwritten_cases(token: str, text: str) -> None:
    assert readable_token(token) == text


@given(st.text(min_size=1).filter(lambda text: not text.startswith("<0x")))
def test_complete_characters_round_trip(text: str) -> None:
    """The tokenizers library provides the byte symbols of a text."""
    token = "".join(piece for piece, _ in symbols.pre_tokenize_str(text))
    assert readable_token(token) == text


@given(st.characters(min_codepoint=0x80, exclude_categories=["Cs"]), st.data())
def test_incomplete_characters_are_shown_as_bytes(character: str, data: st.DataObject) -> None:
    whole = character.encode()
    size = data.draw(st.integers(1, len(whole) - 1))
    token = "".join(piece for piece, _ in symbols.pre_tokenize_str(character))
    assert readable_token(token[:size]) == "".join(f"\\x{byte:02X}" for byte in whole[:size])
