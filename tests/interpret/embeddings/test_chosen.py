"""Texts drawn by lot and typed lines as examples."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.examples import TextExample
from regard.errors import InputError
from regard.interpret.embeddings.chosen import drawn, left_out, piped, read_typed


@given(st.integers(0, 300), st.integers(1, 300), st.integers(0, 50))
def test_a_lot_is_in_order_without_doubles_and_repeats(count: int, limit: int, seed: int) -> None:
    found = drawn(count, limit, seed)
    assert found == sorted(set(found)) == drawn(count, limit, seed)
    assert len(found) == min(count, limit)
    assert set(found) <= set(range(count))


def test_seeds_differ_and_what_is_left_out_is_told() -> None:
    assert drawn(1000, 10, 1) != drawn(1000, 10, 2)
    assert left_out(12_000, 2_000, 7) == ["2,000 of 12,000 texts were drawn by lot (seed 7); 10,000 are left out"]
    assert left_out(5, 5, 0) == []
    with pytest.raises(InputError, match="the limit is 0"):
        drawn(3, 0)


def test_typed_lines() -> None:
    assert read_typed("one\r\n\n  two, three \n") == [TextExample("one"), TextExample("  two, three ")]
    assert read_typed("a | b | x\nc|y z ") == [TextExample("a | b", label="x"), TextExample("c", label="y z")]
    assert read_typed("a fine film\t1\na poor one\t0") == [
        TextExample("a fine film", label="1"),
        TextExample("a poor one", label="0"),
    ]
    with_header = read_typed("sentence\tlabel\na fine film\t1\na poor one\t0")
    assert [example.label for example in with_header] == ["1", "0"]
    assert read_typed('{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}') == [
        TextExample("a", label="x"),
        TextExample("b", label="y"),
    ]
    assert read_typed("only some | lines\nhave the sign")[0] == TextExample("only some | lines")


def test_what_cannot_be_read_is_told_without_our_file() -> None:
    with pytest.raises(InputError, match="no sentences"):
        read_typed(" \n ")
    with pytest.raises(InputError, match=r"line 2 has no label behind its \|"):
        read_typed("a | x\nb |")
    with pytest.raises(InputError) as error:
        read_typed("sentence\tlabel\na\t1\nb")
    assert "line 3" in str(error.value) and "/" not in str(error.value)


@pytest.mark.parametrize("labels", [None, ["1", "it's"]])
def test_a_shell_gives_the_same_lines(labels: list[str] | None) -> None:
    texts = ["it's $HOME \\n %s `x`", "über 😀"]
    command = piped(texts, labels)
    assert command is not None
    out = subprocess.run(["bash", "-c", f"{command} cat"], capture_output=True, check=True).stdout.decode()
    expected = texts if labels is None else [f"{t}\t{label}" for t, label in zip(texts, labels, strict=True)]
    assert out == "".join(f"{line}\n" for line in expected)


def test_many_lines_are_no_command() -> None:
    assert piped(["a"] * 13, None) is None
    assert piped(["a\nb"], None) is None
