"""Documents: all formats and compressions, folders, and error messages."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from regard.data.corpus import documents as module
from regard.data.corpus.documents import Document, find_sources, read_documents
from regard.errors import InputError

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.compress,
}
PLAIN = "First é.\nSecond.\n\n \t\n\nOther.\r\n"
LINES = [{"text": "First é.\nSecond."}, {"text": " \n"}, {"text": "\n\nOther.\r\n", "id": 3}]
EXPECTED = [("First é.", "Second."), ("Other.",)]


def paragraphs(*paths: Path, **options: str) -> list[tuple[str, ...]]:
    return [document.paragraphs for document in read_documents(paths, **options)]


@pytest.mark.parametrize("suffix", PACK)
def test_plain_text_and_json_lines(suffix: str, tmp_path: Path) -> None:
    plain, lines = tmp_path / f"a.txt{suffix}", tmp_path / f"a.jsonl{suffix}"
    plain.write_bytes(PACK[suffix](PLAIN.encode()))
    lines.write_bytes(PACK[suffix]("\n".join(json.dumps(line) for line in LINES).encode()))
    assert paragraphs(plain) == EXPECTED
    assert paragraphs(lines) == EXPECTED
    assert paragraphs(plain, lines) == EXPECTED * 2


def test_document_boundaries(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\nOne.\n\n\nTwo.\nMore.\n")
    assert list(read_documents(path)) == [Document(path, 2, ("One.",)), Document(path, 5, ("Two.", "More."))]


def test_end_of_file_ends_a_document(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"Of {name}.")
    assert paragraphs(tmp_path) == [("Of a.",), ("Of b.",)]


def test_custom_json_key(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"body": "Here."}\n')
    assert paragraphs(path, key="body") == [("Here.",)]
    with pytest.raises(InputError, match=r"a\.jsonl line 1: no key 'text'.*body"):
        paragraphs(path)


def test_folders_are_sorted_and_skipped_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/z.txt", "b/a.jsonl", "a.txt.gz", "c.text", "picture.png", ".hidden.txt", "d.xz", "e.csv"):
        (tmp_path / name).write_bytes(gzip.compress(b"") if name.endswith("gz") else b"x" * (name == "c.text"))
    (tmp_path / "d.xz").write_bytes(lzma.compress(b"y"))
    found = find_sources(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in found.files] == [
        "a.txt.gz",
        "b/a.jsonl",
        "b/z.txt",
        "c.text",
        "d.xz",
    ]
    assert [path.name for path in found.skipped] == [".hidden.txt", "e.csv", "picture.png"]
    assert paragraphs(tmp_path) == [("x",), ("y",)]


def test_empty_files_give_no_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n \n")
    assert paragraphs(tmp_path) == []


@pytest.mark.parametrize("suffix", [suffix for suffix in PACK if suffix])
def test_truncated_archive_is_reported(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.txt{suffix}"
    whole = PACK[suffix]("".join(f"Line {number * number}.\n\n" for number in range(20_000)).encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=rf"a\.txt\{suffix} is .*damaged after line \d+"):
        paragraphs(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Fine.\n\ncaf\xe9\n".encode("latin-1"), r"a\.txt line 3: byte 4 .* is not UTF-8"),
        ("Text.\n".encode("utf-16"), r"a\.txt line 1: this is UTF-16"),
        ("Text.\n".encode("utf-16-le"), r"a\.txt line 1 contains a NUL character"),
    ],
)
def test_other_encodings_are_reported(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        paragraphs(path)


@pytest.mark.parametrize("line", ['{"text": "a"', "[1]", '{"text": 3}'])
def test_invalid_json_is_reported(line: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n' + line)
    with pytest.raises(InputError, match=r"a\.jsonl line 2"):
        paragraphs(path)


def test_invalid_sources_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a.csv").write_text("x,y")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"there is no file .*b\.txt; did you mean .*a\.txt"):
        find_sources(tmp_path / "b.txt")
    with pytest.raises(InputError, match=r"not \.csv"):
        find_sources(tmp_path / "a.csv")
    with pytest.raises(InputError, match="has no text files"):
        find_sources(tmp_path / "empty")
    with pytest.raises(InputError, match="same file"):
        find_sources([tmp_path, tmp_path / "a.txt"])
    with pytest.raises(InputError, match="not a regular file"):
        find_sources("-")
    with pytest.raises(InputError, match="got none"):
        find_sources([])


def test_file_without_blank_lines_is_rejected_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CHARACTERS", 100)
    path = tmp_path / "a.txt"
    path.write_text("Short.\n\n" + "Ten chars.\n" * 11)
    with pytest.raises(InputError, match=r"line 13: .*starts at line 3 has more than 100"):
        paragraphs(path)


def test_missing_zstandard_package_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt.zst"
    path.write_bytes(zstandard.compress(b"x"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InputError, match=r"regard\[data\]"):
        paragraphs(path)
