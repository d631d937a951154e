"""Scanning an input: counts, blank lines, the hash, the second pass, and input that can be read only once."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path
from typing import Any

import pytest

from regard.data.readers import TableOptions
from regard.errors import InputError
from regard.inference.bulk.job import InputChanged
from regard.inference.embedding.bulk import InputTexts, scan_texts


def scan(path: str | Path, **options: Any) -> InputTexts:
    return scan_texts(path, table=TableOptions(**options), spool=io.StringIO())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("one\n\n  \ntwo\nthree\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(("missing", "rows", "lines"), [(None, 5, [1, 2, 3, 4, 5]), ("skip", 3, [1, 4, 5])])
def test_blank_lines_are_counted_and_kept_or_skipped(
    missing: str | None, rows: int, lines: list[int], file: Path
) -> None:
    texts = scan(file, missing=missing)
    assert (texts.count, texts.missing, texts.rereadable) == (rows, 2, True)
    assert texts.empty == ({1, 2} if missing is None else set())
    assert [line for line, _ in texts] == lines
    assert [text for _, text in texts if text.strip()] == ["one", "two", "three"]


def test_a_blank_line_is_an_error_with_its_line_number(file: Path) -> None:
    with pytest.raises(InputError, match=r"txt line 2 has no text .*--missing keep .*skip"):
        scan(file, missing="error")


@pytest.mark.parametrize(
    ("content", "message"), [("", "is empty"), ("\n \n", "is empty"), ("id\ttext\n1\t\n", "no row with a text")]
)
def test_an_input_without_texts(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "none.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=rf"none\.txt .*{message}"):
        scan(path)


def test_an_unknown_way_with_missing_texts(file: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'skip'"):
        scan(file, missing="skp")


def test_the_hash_depends_on_the_texts_only(tmp_path: Path) -> None:
    plain, packed, other, shifted = (tmp_path / name for name in ("a.txt", "a.gz", "b.txt", "c.txt"))
    plain.write_text("one\ntwo\n", encoding="utf-8")
    packed.write_bytes(gzip.compress(b"one\r\ntwo"))
    other.write_text("one\ntwo!\n", encoding="utf-8")
    shifted.write_text("on\netwo\n", encoding="utf-8")
    assert scan(plain).digest == scan(packed).digest
    assert len({scan(path).digest for path in (plain, other, shifted)}) == 3


def test_lines_appended_after_the_scan_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("one\ntwo\n", encoding="utf-8")
    texts = scan(path)
    with path.open("a", encoding="utf-8") as file:
        file.write("three\n")
    assert list(texts) == [(1, "one"), (2, "two")]


@pytest.mark.parametrize("content", [b"one\ntoo\n", b"one\n", b"one\ntw\xff\n", None])
def test_a_change_between_the_passes_is_detected(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("one\ntwo\n", encoding="utf-8")
    texts = scan(path)
    path.write_bytes(content) if content is not None else path.unlink()
    with pytest.raises(InputChanged, match=r"texts\.txt was changed while it was read"):
        list(texts)


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="needs /dev/fd")
def test_input_that_can_be_read_once_is_spooled() -> None:
    reader, writer = os.pipe()
    os.write(writer, "one\n\tt\u2028wo\n\n".encode())
    os.close(writer)
    texts = scan(Path(f"/dev/fd/{reader}"))  # the path a shell gives to `<(command)`
    os.close(reader)
    assert not texts.rereadable
    assert list(texts) == list(texts) == [(1, "one"), (2, "\tt\u2028wo"), (3, "")]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"t": "one"}\n{"t": "two"}\n')))
    texts = scan("-", columns=("t",))
    assert (texts.name, texts.rereadable) == ("standard input", False)
    assert list(texts) == [(1, "one"), (2, "two")]


@pytest.mark.parametrize(("name", "column"), [("absent.txt", None), ("absent", None), ("texts.txt", "x")])
def test_missing_files_and_columns_are_refused(name: str, column: str | None, file: Path) -> None:
    with pytest.raises(InputError):
        scan(file.parent / name, columns=column and (column,))
