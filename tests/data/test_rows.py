"""The streaming reader of rows: formats, roles of columns, missing texts, messy files, lists and data frames."""

from __future__ import annotations

import gzip
import io
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data.readers import TableOptions, read_text_examples
from regard.data.rows import RowReader, open_rows
from regard.errors import InputError

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def read(source: Any, *columns: str, num_texts: int | None = 1, **options: Any) -> list[tuple[int, Any]]:
    """(line, text) of each row, or (line, texts) of pairs."""
    table = TableOptions(columns=columns or None, **options)
    rows = list(open_rows(source, table, num_texts=num_texts))
    assert [row.number for row in rows] == list(range(len(rows)))
    return [(row.line, row.texts[0] if len(row.texts) == 1 else row.texts) for row in rows]


def stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))  # type: ignore[arg-type]


MESSY = (
    '\ufeffid;review;label\r\n1;"good; very\r\n""good"" 😀";pos\r\n\r\n2;;neg\r\n3;  ;neg\r\n4;nicht übel, ja;pos\r\n'
)
MESSY_ROWS = [(2, 'good; very\n"good" 😀'), (4, None), (5, None), (6, None), (7, "nicht übel, ja")]


def test_a_messy_file(write: Write) -> None:
    path = write("a.csv", MESSY)
    rows = open_rows(path)
    assert rows.description == "semicolon-separated, quoted, header, text = review"
    assert (rows.columns, rows.text_columns) == (("id", "review", "label"), ("review",))
    found = list(rows)
    assert [(row.line, row.texts[0]) for row in found] == MESSY_ROWS
    assert [row.number for row in found] == [0, 1, 2, 3, 4]
    assert found[4].values == {"id": "4", "review": "nicht übel, ja", "label": "pos"}
    assert rows.location(found[4]).endswith("a.csv line 7")


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32", "utf-8-sig", "UTF8"])
def test_encodings(encoding: str, write: Write) -> None:
    content = MESSY.removeprefix("\ufeff").replace("😀", "é").encode(encoding)
    expected = [(line, text and text.replace("😀", "é")) for line, text in MESSY_ROWS]
    assert read(write("a.csv", content), encoding=encoding) == expected


def test_a_wrong_encoding_names_the_option(write: Write) -> None:
    path = write("a.csv", "id,text\n1,caf\xe9\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"a\.csv line 2: byte 6 .*0xe9.* UTF-8; .*--encoding latin-1"):
        read(path)
    with pytest.raises(InputError, match="is not ASCII"):
        read(path, encoding="ascii")
    for name in ("klingon", "base64", "rot13", "a\0b", ""):
        with pytest.raises(InputError, match="there is no encoding"):
            read(path, encoding=name)
    with pytest.raises(InputError, match=r"line 1: this is UTF-16, .*--encoding utf-16"):
        read(write("b.csv", "id,text\n".encode("utf-16")))
    with pytest.raises(InputError, match="after line 0: not utf-16"):
        read(write("b.csv", b"\xff\xfea"), encoding="utf-16")


def test_one_text_per_line(write: Write) -> None:
    path = write("a.txt", "First, we go\r\n\ntwo, with a comma\tand a tab\nlast")
    assert read(path) == [(1, "First, we go"), (2, None), (3, "two, with a comma\tand a tab"), (4, "last")]
    assert open_rows(path).columns == ("text",)
    for content in ("", "\n \n"):
        with pytest.raises(InputError, match=r"empty\.txt is empty"):
            read(write("empty.txt", content))


@pytest.mark.parametrize("suffix", [".txt", ""])
def test_a_header_makes_a_table_of_a_file_without_a_telling_suffix(suffix: str, write: Write) -> None:
    assert read(write(f"a{suffix}", "id,text\n1,one\n2,two\n")) == [(2, "one"), (3, "two")]
    assert read(write(f"a{suffix}", "id;text\n1;one\n2;two\n")) == [(2, "one"), (3, "two")]
    texts = "Question, I have one\nText, glorious text\n"
    assert [text for _, text in read(write(f"b{suffix}", texts))] == texts.splitlines()


def test_tabs_columns_by_index_and_quotes(write: Write) -> None:
    path = write("a.tsv", 'a "quoted\t1\nb\t0\n')
    assert read(path) == read(path, "0") == [(1, 'a "quoted'), (2, "b")]
    assert read(path, "1") == [(1, "1"), (2, "0")]
    assert open_rows(path).columns == ("column 0", "column 1")


def test_columns_by_name(write: Write) -> None:
    path = write("a.tsv", "label\tsentence\tnote\n1\tgood\tx\n\n0\tbad\ty\n")
    assert read(path) == [(2, "good"), (3, None), (4, "bad")]
    assert read(path, "note") == read(path, "2") == [(2, "x"), (3, None), (4, "y")]
    with pytest.raises(InputError, match=r"a\.tsv: no column 'sentense'; .*'sentence'.*0 to 2"):
        read(path, "sentense")
    with pytest.raises(InputError, match="one column, that of the text; got sentence, label"):
        read(path, "sentence", "label")


def test_names_of_a_model_are_preferred(write: Write) -> None:
    path = write("a.csv", "title,Body Text,text\na,b,c\n")
    assert open_rows(path).text_columns == ("text",)
    assert open_rows(path, names=["body_text"]).text_columns == ("Body Text",)
    assert open_rows(path, names=["absent"]).text_columns == ("text",)


def test_a_header_without_rows(write: Write) -> None:
    with pytest.raises(InputError, match=r"a\.csv has a header and no rows"):
        read(write("a.csv", "id,text\n"))
    with pytest.raises(InputError, match="has a header and no rows"):
        open_rows(write("a.csv", "id,text\n"), sample=1)


def test_damaged_files(write: Write) -> None:
    with pytest.raises(InputError, match=r"a\.csv\.gz is truncated or damaged"):
        read(write("a.csv.gz", gzip.compress(b"id,text\n1,a\n" * 50)[:-9]))
    with pytest.raises(InputError, match=r"b\.gz is truncated or damaged"):
        read(write("b.gz", b"\x1f\x8b\x08"))
    with pytest.raises(InputError, match=r"a\.parquet is not a Parquet file or is damaged"):
        read(write("a.parquet", b"PAR1 not really"))


def test_pairs(write: Write) -> None:
    path = write("a.tsv", "premise\thypothesis\tlabel\na b\tc d\t1\ne f\t\t0\n")
    assert read(path, num_texts=2) == read(path, num_texts=None) == [(2, ("a b", "c d")), (3, ("e f", None))]
    with pytest.raises(InputError, match="has two texts, premise and hypothesis, and one is expected"):
        read(path)
    with pytest.raises(InputError, match=r"one text per row .*expected two, premise and hypothesis"):
        open_rows(write("a.txt", "a b\n"), num_texts=2, names=("premise", "hypothesis"))
    with pytest.raises(InputError, match="two columns"):
        read(path, "premise", num_texts=2)


def test_a_pair_by_the_names_of_the_verbs(write: Write) -> None:
    path = write("a.csv", "text,text_b,label\na b,c d,1\n")
    assert read(path, num_texts=None) == [(2, ("a b", "c d"))]
    with pytest.raises(InputError, match="has two texts, text and text_b, and one is expected"):
        read(path)


def test_ragged_rows_are_errors(write: Write) -> None:
    with pytest.raises(InputError, match=r"a\.tsv line 2: expected column 1, .* 1 of 2 columns"):
        read(write("a.tsv", "a\tb\nc\n"), "1")
    with pytest.raises(InputError, match=r"line 3: expected 2 columns, .* has 3; .*quote"):
        read(write("a.csv", "id,text\n1,a\n2,b, c\n"))


@pytest.mark.parametrize("row", ['2,"never closed', '2,"closed" and more'])
def test_invalid_csv_is_reported(row: str, write: Write) -> None:
    with pytest.raises(InputError, match=r"a\.csv line 2: not a valid quoted row"):
        read(write("a.csv", f"1,one\n{row}\n3,three\n"), "1")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # tolerate a busy machine
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_json_lines_round_trip(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("json") / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    assert read(path) == [(number, text if text.strip() else None) for number, text in enumerate(texts, start=1)]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r")), min_size=1))
def test_csv_of_pandas_round_trip(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    pd.DataFrame({"id": range(len(texts)), "text": texts}).to_csv(path, index=False)
    assert [text for _, text in read(path)] == [text if text.strip() else None for text in texts]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{'text': 1}", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "expected a JSON object, got a list"),
        ('{"text": 3}', "text should be a text, got a number"),
        ('{"text": "\\ud83d"}', "lone surrogate"),
    ],
)
def test_invalid_json_is_reported(line: str, message: str, write: Write) -> None:
    path = write("a.jsonl", '{"text": "fine"}\n\n{"x": 1}\n{"text": null}\n' * 400 + line + "\n")
    rows = iter(open_rows(path))
    assert [next(rows).texts[0] for _ in range(1600)] == ["fine", None, None, None] * 400
    with pytest.raises(InputError, match=rf"a\.jsonl line 1601: .*{message}"):
        next(rows)


def test_an_absent_key_is_reported(write: Write) -> None:
    with pytest.raises(InputError, match=r"a\.jsonl: no column 'text'; did you mean 'txt'"):
        read(write("a.jsonl", '{"txt": "a"}\n'), "text")


@pytest.mark.parametrize("name", ["a.parquet", "a.parquet.gz", "a.parquet.zip.gz", "unnamed", "-"])
def test_parquet(name: str, tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    pd.DataFrame({"review": ["a", None, "c"], "stars": [1, 2, 3]}).to_parquet(buffer)
    content = buffer.getvalue()
    source: str | Path = name
    if name == "-":
        stdin(monkeypatch, content)
    else:
        source = write(name, gzip.compress(content) if name.endswith(".gz") else content)
    rows = open_rows(source)
    assert (rows.description, rows.columns) == ("Parquet, text = review", ("review", "stars"))
    found = list(rows)
    assert [(row.line, row.texts[0], row.values["stars"]) for row in found] == [(1, "a", 1), (2, None, 2), (3, "c", 3)]
    assert rows.location(found[0]).endswith("row 1")


def test_json_list_and_standard_input(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(write("a.json", '[{"text": "a"},\n{"text": ""}]')) == [(1, "a"), (2, None)]
    for content in (MESSY.encode(), gzip.compress(MESSY.encode())):
        stdin(monkeypatch, content)
        assert read("-") == MESSY_ROWS


def test_standard_input_answers_before_the_second_line_is_sent() -> None:
    """A sample of one row: a sender may wait for each answer."""
    reading, writing = os.pipe()
    try:
        os.write(writing, b"\nfirst text\n")
        rows = iter(open_rows(f"/dev/fd/{reading}", sample=1))
        assert [next(rows).texts[0], next(rows).texts[0]] == [None, "first text"]
        os.write(writing, b"second\n")
        assert next(rows).texts[0] == "second"
    finally:
        os.close(writing)
    assert list(rows) == []
    os.close(reading)


def test_the_first_rows_decide_as_for_training(write: Write) -> None:
    """The reader of rows and that of examples agree on format and columns."""
    for name, content in {
        "a.csv": MESSY,
        "b.tsv": "".join(f"{n}\ta text of some words {n}\t{n % 2}\n" for n in range(50)),
        "c.csv": "wording,stance\n" + "".join(f"some words {n},{'pro' if n % 3 else 'con'}\n" for n in range(60)),
        "d.jsonl": '{"comment": "a b", "y": 1}\n{"comment": "c d", "y": 0}\n',
    }.items():
        path = write(name, content)
        examples = read_text_examples(path, TableOptions(missing="skip"), task="classify")
        rows = open_rows(path)
        assert examples.description.startswith(rows.description)
        assert [row.texts[0] for row in rows if not row.is_missing] == [one.text for one in examples.examples]
        assert examples.text_columns in (("text",), rows.text_columns)


def texts_of(rows: RowReader, missing: Any) -> list[str | None]:
    return [row.texts[0] for row in rows.read(missing)]


def test_missing_texts(write: Write) -> None:
    path = write("a.csv", MESSY)
    with pytest.raises(InputError, match=r"a\.csv line 4 .*\(review\); .*--missing keep .*skip"):
        texts_of(open_rows(path), "error")
    rows = open_rows(path)
    assert texts_of(rows, "keep").count(None) == rows.num_missing == 3
    assert (rows.missing_note("keep") or "").startswith("3 rows without a text get no answer; the first is ")
    rows = open_rows(path)
    assert texts_of(rows, "skip") == [MESSY_ROWS[0][1], MESSY_ROWS[4][1]]
    assert (rows.missing_note("skip") or "").endswith("a.csv line 4")
    with pytest.raises(InputError, match="did you mean 'skip'"):
        texts_of(open_rows(path), "skp")
    assert open_rows(["a"]).missing_note("keep") is None


def test_data_frames() -> None:
    frame = pd.DataFrame({"review": ["a text", float("nan"), None, pd.NA, "d"], "n": range(5)})
    rows = open_rows(frame)
    assert (rows.description, rows.columns, rows.text_columns) == (
        "DataFrame, text = review",
        ("review", "n"),
        ("review",),
    )
    assert read(frame) == [(1, "a text"), (2, None), (3, None), (4, None), (5, "d")]
    assert [row.values["n"] for row in rows] == list(range(5))
    assert read(frame[["review"]].rename(columns={"review": 0})) == read(frame)
    with pytest.raises(InputError, match=r"the DataFrame row 1: n should be a text, got a number"):
        read(frame, "n")
    with pytest.raises(InputError, match=r"which columns.* 0 a 'some words here'"):
        read(pd.DataFrame({"a": ["some words here", "and others too"], "b": ["more words here", "and others now"]}))
    with pytest.raises(InputError, match="empty"):
        read(frame[:0])


def test_lists_series_and_arrays() -> None:
    expected = [(1, "a"), (2, None), (3, "b\tc")]
    for source in (["a", None, "b\tc"], ("a", "", "b\tc"), pd.Series(["a", float("nan"), "b\tc"])):
        assert read(source) == expected
    assert read(np.array(["a", "b"])) == [(1, "a"), (2, "b")]
    assert read(iter(["a"])) == [(1, "a")]
    pairs = [(1, ("a", "b")), (2, ("c", None)), (3, (None, None))]
    assert read([("a", "b"), ["c", None], None], num_texts=2) == pairs
    assert read(np.array([["a", "b"]]), num_texts=None) == pairs[:1]
    with pytest.raises(InputError, match=r"text 1: .*pair.*\(premise and hypothesis\), got one"):
        list(open_rows(["a\tb"], num_texts=2, names=("premise", "hypothesis")))
    with pytest.raises(InputError, match=r"text 2: expected one text .*got 2 items"):
        read(["a", ("b", "c")])
    with pytest.raises(InputError, match="text 1: text should be a text, got a number: 3"):
        read([3])
    with pytest.raises(InputError, match="no texts"):
        read([])


def test_a_field_of_a_megabyte(write: Write) -> None:
    long = "x" * 1_000_000
    assert read(write("a.csv", f'1,"{long}"\n'), "1") == [(1, long)]
    assert read(write("a.tsv", f"1\t{long}\n"), "1") == [(1, long)]


@pytest.mark.long
def test_memory_does_not_grow_with_the_file(write: Write) -> None:
    peaks = []
    for lines in (20_000, 200_000):
        path = write("a.tsv", "some text of a line\t1\n" * lines)
        tracemalloc.start()
        assert sum(1 for _ in open_rows(path)) == lines
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] < 8_000_000


def test_sentiment_dataset(shared_data: Callable[[str], Path]) -> None:
    rows = read(shared_data("sst2/train.tsv"))
    assert len(rows) == 6920
    assert rows[0][1].startswith("a stirring , funny")


REPEATED = "text,text,label,\nfirst one,second one,pos,x\na dog,a cat,neg,y\n"


def test_columns_of_one_name_are_renamed_with_a_note(write: Write) -> None:
    rows = open_rows(write("a.csv", REPEATED))
    assert rows.columns == ("text", "text_2", "label", "")
    assert "the second column 'text' is read as 'text_2'" in rows.description
    first = next(iter(rows))
    assert first.texts == ("first one",)
    assert first.values == {"text": "first one", "text_2": "second one", "label": "pos", "": "x"}
    assert read(write("b.csv", REPEATED), "text_2") == [(2, "second one"), (3, "a cat")]
    taken = open_rows(write("c.csv", "text,text_2,text,text,,\na,b,c,d,e,f\n"))
    assert taken.columns == ("text", "text_2", "text_3", "text_4", "", "column_2")


def test_a_renamed_column_is_named_in_the_description_of_examples(write: Write) -> None:
    found = read_text_examples(write("a.csv", REPEATED), TableOptions(columns=("text_2", "label")), task="classify")
    assert [example.text for example in found.examples] == ["second one", "a cat"]
    assert "the second column 'text' is read as 'text_2'" in found.description


def test_frames_and_parquet_with_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    frame = pd.DataFrame([["a", "b"]], columns=["text", "text"])
    with pytest.raises(InputError, match="two columns named 'text'; rename one"):
        open_rows(frame)
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet has two columns named 'text'; rename one"):
        list(open_rows(tmp_path / "a.parquet"))


def test_a_key_that_an_object_has_twice(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a"}\n{"text": "b", "text": "c"}\n')
    with pytest.raises(InputError, match=r"line 2: the key 'text' is there twice"):
        list(open_rows(path))
