"""Labeled texts in requests: lines that a client sends, and commands that print them again."""

from __future__ import annotations

import subprocess

import pytest

from regard.cli.app import run
from regard.data.examples import TextExample
from regard.errors import InputError
from regard.verbs import VERBS, find
from regard.verbs.base import TABLE_GROUP, _print_lines, cli_of
from regard.verbs.tables import RowsRequest, TableRequest, parse_lines


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


def test_one_set_of_table_options() -> None:
    """Every verb that reads columns has all table options, with the same types, and lists them under one heading."""
    shared = ("header", "delimiter", "quoted", "encoding")
    reading = [verb for verb in map(find, VERBS) if "columns" in verb.request.model_fields]
    expected = {
        "embed",
        "predict",
        "evaluate",
        "train",
        "index",
        "search",
        "score",
        "translate",
        "map",
        "doctor",
        "layers",
    }
    assert {verb.name for verb in reading} >= expected
    for verb in reading:
        fields = verb.request.model_fields
        for name in shared:
            assert fields[name].annotation == TableRequest.model_fields[name].annotation, verb.name
            assert fields[name].description == TableRequest.model_fields[name].description, verb.name
        answers = issubclass(verb.request, RowsRequest)
        assert fields["missing"].default == ("keep" if answers else "error"), verb.name
        assert all(cli_of(fields[name])["group"] == TABLE_GROUP for name in (*shared, "columns", "missing")), verb.name


@pytest.mark.long
def test_help_pages_have_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["embed", "--help"]) == 0
    page = capsys.readouterr().out
    assert [line for line in page.splitlines() if line.endswith(":") and not line.startswith(" ")] == [
        "Arguments:",
        "Options:",
        "Input table:",
        "Cluster:",
        "Run:",
        "General:",
    ]
    assert page.index("--pooling") < page.index("Input table:") < page.index("--columns") < page.index("--json")
