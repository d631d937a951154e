"""Texts and their line numbers, read from lines and columns."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data.readers.tables import read_text_column
from regard.errors import InputError


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def make(name: str, content: str) -> Path:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8", newline="")
        return path

    return make


Write = Callable[[str, str], Path]


def test_one_text_per_line(write: Write) -> None:
    path = write("a.txt", "one\r\n\ntwo, with a comma\tand a tab\nlast")
    assert list(read_text_column(path)) == [(1, "one"), (2, ""), (3, "two, with a comma\tand a tab"), (4, "last")]
    assert list(read_text_column(write("empty.txt", ""))) == []


def test_tsv_by_number_reads_every_row_and_preserves_quotes(write: Write) -> None:
    path = write("a.tsv", 'a "quoted\t1\nb\t0\n')
    assert list(read_text_column(path, column=0)) == [(1, 'a "quoted'), (2, "b")]
    assert list(read_text_column(path, column="1")) == [(1, "1"), (2, "0")]


def test_tsv_by_name_skips_the_header(write: Write) -> None:
    path = write("a.tsv", "label\tsentence\n1\tgood\n\n0\tbad\n")
    assert list(read_text_column(path, column="sentence")) == [(2, "good"), (3, ""), (4, "bad")]
    with pytest.raises(InputError, match=r"a\.tsv line 1: no column 'sentense'.*did you mean 'sentence'.*0 to 1"):
        list(read_text_column(path, column="sentense"))


def test_short_row_is_reported(write: Write) -> None:
    path = write("a.tsv", "a\tb\nc\n")
    with pytest.raises(InputError, match=r"a\.tsv line 2: expected column 1, but this row has columns 0 to 0"):
        list(read_text_column(path, column=1))


def test_csv_quotes_may_span_lines(write: Write) -> None:
    path = write("a.csv", 'id,text\r\n1,"one, ""quoted""\r\nsecond line"\r\n2,two\r\n')
    assert list(read_text_column(path, column="text")) == [(2, 'one, "quoted"\nsecond line'), (4, "two")]


@pytest.mark.parametrize("row", ['2,"never closed', '2,"closed" and more'])
def test_invalid_csv_is_reported(row: str, write: Write) -> None:
    path = write("a.csv", f"1,one\n{row}\n3,three\n")
    with pytest.raises(InputError, match=r"a\.csv line 2: not a CSV row"):
        list(read_text_column(path, column=1))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # tolerate a busy machine
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_json_lines_round_trip(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("json") / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    assert list(read_text_column(path, column="text")) == list(enumerate(texts, start=1))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{'text': 1}", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "expected a JSON object, got a list"),
        ('{"txt": "a"}', "no key 'text'; did you mean 'txt'"),
        ('{"text": null}', "'text' should be a string, got null"),
        ('{"text": 3}', "'text' should be a string, got a number"),
        ('{"text": "\\ud83d"}', "lone surrogate"),
    ],
)
def test_invalid_json_is_reported(line: str, message: str, write: Write) -> None:
    path = write("a.jsonl", '{"text": "fine"}\n\n' + line + "\n")
    texts = read_text_column(path, column="text")
    assert [next(texts), next(texts)] == [(1, "fine"), (2, "")]
    with pytest.raises(InputError, match=rf"a\.jsonl line 3: .*{message}"):
        next(texts)


def test_format_is_detected_from_the_first_line(write: Write) -> None:
    for content in ("a\tb, c\n", '"b, c",a\n', '{"0": "b, c", "1": "b, c"}\n'):
        column = 0 if content.startswith('"') else 1
        assert list(read_text_column(write("a.txt", content), column=column)) == [(1, "b, c")]
    with pytest.raises(InputError, match=r"a\.txt line 1: no tab, comma or JSON"):
        list(read_text_column(write("a.txt", "plain\n"), column=0))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "text\t1\n", "line 1 has 2 columns: .*from 0 to 1"),
        ("a.csv", "a,b,c\n", "line 1 has 3 columns: .*from 0 to 2"),
        ("a.jsonl", "{}\n", "--column KEY"),
    ],
)
def test_tables_are_not_read_as_plain_text(name: str, content: str, message: str, write: Write) -> None:
    with pytest.raises(InputError, match=message):
        list(read_text_column(write(name, content)))


def test_a_field_of_a_megabyte(write: Write) -> None:
    long = "x" * 1_000_000
    assert list(read_text_column(write("a.csv", f'1,"{long}"\n'), column=1)) == [(1, long)]
    assert list(read_text_column(write("a.tsv", f"1\t{long}\n"), column=1)) == [(1, long)]


def test_memory_does_not_grow_with_the_file(write: Write) -> None:
    path = write("a.tsv", "some text of a line\t1\n" * 100_000)
    tracemalloc.start()
    count = sum(1 for _ in read_text_column(path, column=0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 100_000
    assert peak < 200_000


def test_sentiment_dataset(shared_data: Callable[[str], Path]) -> None:
    rows = list(read_text_column(shared_data("sst2/train.tsv"), column=0))
    assert len(rows) == 6920
    assert rows[0][1].startswith("a stirring , funny")
