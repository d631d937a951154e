"""Which characters are escaped and how; all others are unchanged."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.escaping import escape_controls, escape_json

TERMINAL = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A))}


@pytest.mark.parametrize(
    ("text", "line", "lines"),
    [
        ("\x1b[31mred", r"\x1b[31mred", r"\x1b[31mred"),
        ("\x9b2J\x7f", r"\x9b2J\x7f", r"\x9b2J\x7f"),
        ("a\r\nb\tc", r"a\r\nb\tc", "a\\r\nb\tc"),
        ("\u202eabc\u2069\u2028", r"\u202eabc\u2069\u2028", r"\u202eabc\u2069\u2028"),
        ("\ud800", r"\ud800", r"\ud800"),
        (
            "[red]été 日本 \u200f👩\u200d🔬 \\x1b",
            "[red]été 日本 \u200f👩\u200d🔬 \\x1b",
            "[red]été 日本 \u200f👩\u200d🔬 \\x1b",
        ),
    ],
)
def test_escapes(text: str, line: str, lines: str) -> None:
    assert escape_controls(text) == line
    assert escape_controls(text, multiline=True) == lines


@given(
    st.text(st.characters() | st.sampled_from(sorted(TERMINAL)) | st.characters(categories=["Cc", "Cs", "Zl", "Zp"]))
)
def test_no_control_characters_remain_and_other_text_is_unchanged(text: str) -> None:
    escaped = escape_controls(text)
    assert not TERMINAL & set(escaped)
    assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in escaped)
    assert escape_controls(escaped) == escaped
    assert set(escape_controls(text, multiline=True)) & TERMINAL <= {"\n", "\t"}
    if not TERMINAL & set(text) and not any("\ud800" <= character <= "\udfff" for character in text):
        assert escaped == text


@settings(max_examples=40)
@given(st.dictionaries(st.text(), st.lists(st.text(st.characters() | st.sampled_from(sorted(TERMINAL))))))
def test_an_escaped_json_document_has_the_same_value(document: dict[str, list[str]]) -> None:
    escaped = escape_json(json.dumps(document, ensure_ascii=False, indent=1))
    assert json.loads(escaped) == document
    assert TERMINAL & set(escaped) <= {"\n"}
