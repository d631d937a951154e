"""Rows of several files, and of files on an object store, are read as one sequence."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from regard.data.readers import TableOptions
from regard.data.rows import open_rows
from regard.errors import InputError
from regard.files import storage
from regard.tasks.registry import read_examples
from tests.object_store import ObjectStore

Write = Callable[[Mapping[str, bytes]], None]


def parquet(*texts: str) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    file = io.BytesIO()
    write_table(pyarrow.table({"id": list(range(len(texts))), "text": list(texts)}), file, row_group_size=2)
    return file.getvalue()


FILES = {
    "lines.txt": b"one\ntwo words\n",
    "table.csv": b'id,text\n1,"one, quoted"\n2,two words\n',
    "records.jsonl": b'{"text": "one"}\n{"text": "two words"}\n',
    "list.json": b'[{"text": "one"}, {"text": "two words"}]',
    "table.parquet": parquet("one", "two", "three", "four", "five"),
    "lines.txt.gz": gzip.compress(b"one\ntwo words\n"),
    "records.jsonl.xz": lzma.compress(b'{"text": "one"}\n{"text": "two words"}\n'),
    "table.tsv.bz2": bz2.compress(b"id\ttext\n1\tone\n2\ttwo words\n"),
    "table.parquet.gz": gzip.compress(parquet("one", "two", "three")),
}


@pytest.fixture(params=["local", "remote"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Write]:
    """The address of an empty folder, and a function that writes files into it."""
    if request.param == "remote":
        store: ObjectStore = request.getfixturevalue("object_store")
        return store.address, store.put

    def write(files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(data)

    return str(tmp_path), write


@pytest.mark.parametrize("name", FILES)
def test_one_remote_file_reads_as_a_local_one(name: str, object_store: ObjectStore, tmp_path: Path) -> None:
    object_store.put({name: FILES[name]})
    (tmp_path / name).write_bytes(FILES[name])
    address = f"{object_store.address}/{name}"
    local = list(open_rows(tmp_path / name))
    assert list(open_rows(address)) == list(open_rows(Path(address))) == local
    assert len(local) >= 2


@pytest.mark.parametrize("pattern", ["", "/*.txt*", "/**/*.txt*"])
def test_files_are_one_sequence_in_sorted_order(place: tuple[str, Write], pattern: str) -> None:
    base, write = place
    write({"10.txt": b"c\n", "2.txt.gz": gzip.compress(b"d\n\ne"), "1.txt": b"a\nb\n", "notes.md": b"no"})
    rows = open_rows(base + pattern)
    found = list(rows)
    assert [row.texts[0] for row in found] == ["a", "b", "c", "d", None, "e"]
    assert [row.number for row in found] == list(range(6)) and [row.line for row in found] == list(range(1, 7))
    assert rows.location(found[4]) == storage.join(base, "2.txt.gz") + " line 2"
    assert rows.description == "one text per line; 3 files" and not rows.is_table


def test_tables_of_a_folder_share_their_columns(place: tuple[str, Write]) -> None:
    base, write = place
    write({"a.csv": b"id,review\n1,fine film\n2,bad film\n", "b.csv": b"review,id\na dull film,3\n"})
    rows = open_rows(base)
    assert rows.is_table and rows.text_columns == ("review",) and rows.columns == ("id", "review")
    assert [(row.texts[0], row.values["id"]) for row in rows] == [
        ("fine film", "1"),
        ("bad film", "2"),
        ("a dull film", "3"),
    ]


def test_parquet_of_a_folder(place: tuple[str, Write]) -> None:
    base, write = place
    write(
        {f"part-{number:03d}.parquet": parquet(f"a {number}", f"b {number}") for number in range(3)} | {"_SUCCESS": b""}
    )
    assert [row.texts[0] for row in open_rows(base)] == ["a 0", "b 0", "a 1", "b 1", "a 2", "b 2"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"b.txt": b"fine\n\xff\xfe bad\n"}, "b.txt line 2: byte 1"),
        (
            {"b.txt.gz": gzip.compress(b"".join(b"%d\n" % (number**5) for number in range(20_000)))[:-20]},
            "b.txt.gz is truncated or damaged after line",
        ),
        ({"b.csv": b"id,review\n1,fine film\n2,a dull film\n"}, "b.csv has its texts in review"),
    ],
)
def test_a_bad_file_is_named(place: tuple[str, Write], bad: dict[str, bytes], message: str) -> None:
    base, write = place
    write({"a.txt": b"a fine film\nanother one\n"} | bad)
    with pytest.raises(InputError, match=message) as caught:
        list(open_rows(base))
    assert str(caught.value).startswith(storage.join(base, "b"))


def test_a_bad_line_of_json_is_named(place: tuple[str, Write]) -> None:
    base, write = place
    write({"a.jsonl": b'{"text": "a"}\n', "b.jsonl": b'{"text": "b"}\n{"text": \n'})
    with pytest.raises(InputError, match=r"b\.jsonl line 2: not JSON"):
        list(open_rows(base))
    write({"b.jsonl": b'{"text": "b"}\n{"text": 3}\n'})
    with pytest.raises(InputError, match=r"b\.jsonl line 2: text should be a text"):
        list(open_rows(base))


def test_nothing_to_read(place: tuple[str, Write]) -> None:
    base, write = place
    write({"x/notes.md": b"no"})
    with pytest.raises(InputError, match=r"no file matches .*\*\.txt"):
        open_rows(f"{base}/*.txt")
    with pytest.raises(InputError, match=r"x has no .*notes\.md.*\.txt"):
        open_rows(f"{base}/x")
    with pytest.raises(InputError, match="there is no file"):
        open_rows(f"{base}/none.txt")


def test_missing_rows_are_named_by_file(place: tuple[str, Write]) -> None:
    base, write = place
    write({"a.txt": b"a\n", "b.txt": b"b\n\nc\n"})
    rows = open_rows(base)
    assert [row.texts[0] for row in rows.read("skip")] == ["a", "b", "c"]
    note = rows.missing_note("skip")
    assert note is not None and note.endswith("b.txt line 2")


def test_labeled_examples_of_several_files(place: tuple[str, Write]) -> None:
    base, write = place
    write({"a.tsv": b"text\tlabel\na fine film\tgood\na bad film\tbad\n", "b.tsv": b"text\tlabel\na dull film\tbad\n"})
    read = read_examples("classify", base, table=TableOptions(), labeled=True)
    assert [(example.text, example.label) for example in read.examples] == [
        ("a fine film", "good"), ("a bad film", "bad"), ("a dull film", "bad"),
    ]  # fmt: skip
    assert read.description.endswith("; 2 files") and read.location(2) == "example 3"
    single = read_examples("classify", storage.join(base, "a.tsv"), labeled=True)
    assert single.location(1) == "line 3" and single.path == storage.join(base, "a.tsv")
