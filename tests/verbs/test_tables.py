"""Labeled texts in requests: lines that a client sends, and commands that print them again."""

from __future__ import annotations

import subprocess

import pytest

from regard.data.examples import TextExample
from regard.errors import InputError
from regard.verbs.base import _print_lines
from regard.verbs.tables import parse_lines


def test_typed_lines() -> None:
    assert parse_lines("one\r\n\n  two, three \n") == [TextExample("one"), TextExample("  two, three ")]
    assert parse_lines("a | b | x\nc|y z ") == [TextExample("a | b", label="x"), TextExample("c", label="y z")]
    assert parse_lines("a fine film\t1\na poor one\t0") == [
        TextExample("a fine film", label="1"),
        TextExample("a poor one", label="0"),
    ]
    with_header = parse_lines("sentence\tlabel\na fine film\t1\na poor one\t0")
    assert [example.label for example in with_header] == ["1", "0"]
    assert parse_lines('{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}') == [
        TextExample("a", label="x"),
        TextExample("b", label="y"),
    ]
    assert parse_lines("only some | lines\nhave the sign")[0] == TextExample("only some | lines")


def test_errors_do_not_mention_the_temporary_file() -> None:
    with pytest.raises(InputError, match="no sentences"):
        parse_lines(" \n ")
    with pytest.raises(InputError, match=r"line 2 has no label after its \|"):
        parse_lines("a | x\nb |")
    with pytest.raises(InputError) as error:
        parse_lines("sentence\tlabel\na\t1\nb")
    assert "line 3" in str(error.value) and "/" not in str(error.value)


@pytest.mark.parametrize("labels", [None, ["1", "it's"]])
def test_a_shell_prints_the_same_lines(labels: list[str] | None) -> None:
    texts = ["it's $HOME \\n %s `x`", "über 😀"]
    command = _print_lines(texts if labels is None else list(zip(texts, labels, strict=True)))
    out = subprocess.run(["bash", "-c", f"{command} cat"], capture_output=True, check=True).stdout.decode()
    expected = texts if labels is None else [f"{t}\t{label}" for t, label in zip(texts, labels, strict=True)]
    assert out == "".join(f"{line}\n" for line in expected)


def test_many_lines_give_no_command() -> None:
    assert _print_lines(["a"] * 13) == ""
    assert _print_lines(["a\nb"]) == ""
