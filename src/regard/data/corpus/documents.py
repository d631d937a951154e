"""Reads documents from files, folders and globs, one at a time, so that memory depends on the largest document only.

Sources are on the local disk or on an object store.

Plain text has one paragraph per line and a blank line between documents. In JSON lines every object is a document, and
line breaks in its text separate paragraphs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from regard.data.files import COMPRESSED_SUFFIXES, STANDARD_INPUT, content_suffix, is_glob, open_text
from regard.data.readers.records import parse_object, string_at
from regard.errors import InputError
from regard.files.storage import is_remote, list_files, local_path, normalize

JSON_LINES = (".jsonl", ".ndjson")
PLAIN = (".txt", ".text")
TABLES = (".csv", ".tsv", ".tab", ".json", ".parquet", ".zip", ".tar", ".html", ".xml", ".pdf")
MAX_CHARACTERS = 1 << 27  # of a document; a file without blank lines may have more


Source = Path | str  # a local file, or the address of one on an object store


@dataclass(frozen=True, slots=True)
class Document:
    """The nonblank paragraphs of a document, the file and line (from 1) where it starts, and the last line read."""

    source: Source
    line: int
    paragraphs: tuple[str, ...]
    last_line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Sources:
    """The files of a corpus in reading order, and the files in its folders that were skipped because of their names."""

    files: tuple[Source, ...]
    skipped: tuple[Source, ...]


def read_documents(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, key: str = "text"
) -> Iterator[Document]:
    """Yield the documents of files and folders, in order; `key` is the key of the text in JSON lines.

    Raises InputError with file and line for bytes that are not UTF-8, invalid JSON and truncated compressed files.
    """
    for path in find_sources(paths).files:
        yield from read_file_documents(path, key=key)


def find_sources(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Sources:
    """Return the files, and the text files below the folders and of the globs, sorted by path within each."""
    all_paths = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not all_paths:
        raise InputError("a corpus needs at least one file or folder, got none")
    files: list[Source] = []
    skipped: list[Source] = []
    for path in all_paths:
        if not os.path.isdir(path) and not is_remote(path) and not is_glob(path):
            files.append(local_path(path))
            continue
        inside = _files_of(path)
        texts = inside if inside == [normalize(path)] or is_glob(path) else [file for file in inside if _is_text(file)]
        if not texts:
            raise InputError(f"{path} has no text files: expected .txt or .jsonl files, which may be compressed")
        files += texts
        skipped += [file for file in inside if file not in texts]
    by_real_path: dict[str, Source] = {}
    for file in files:
        _check(file)
        if (real_path := normalize(file) if is_remote(file) else os.path.realpath(file)) in by_real_path:
            raise InputError(f"{file} and {by_real_path[real_path]} are the same file; name it once")
        by_real_path[real_path] = file
    return Sources(tuple(files), tuple(skipped))


def _files_of(path: str | os.PathLike[str]) -> list[Source]:
    """Return all files below a folder, or of a glob or an address, in sorted order."""
    if os.path.isdir(path):
        return [*sorted(Path(parent, name) for parent, _, names in os.walk(path) for name in names)]
    found = list_files(path)
    return [*found] if is_remote(path) else [*map(Path, found)]


def read_file_documents(path: Source, *, key: str = "text") -> Iterator[Document]:
    with open_text(path) as lines:
        yield from parse_documents(lines, path, key=key)


def parse_documents(lines: Iterator[str], path: Source, *, key: str, number: int = 0) -> Iterator[Document]:
    """Yield the documents in the lines of a file, of which `number` were read before."""
    numbered = enumerate(lines, start=number + 1)
    return (
        _json_documents(numbered, path, key) if content_suffix(path) in JSON_LINES else _text_documents(numbered, path)
    )


def _json_documents(lines: Iterable[tuple[int, str]], path: Source, key: str) -> Iterator[Document]:
    for number, line in lines:
        if not line.strip():
            continue
        where = f"{path} line {number}"
        stripped = (part.strip() for part in string_at(parse_object(line, where), key, where).split("\n"))
        if paragraphs := tuple(filter(None, stripped)):
            yield Document(path, number, paragraphs, number)


def _text_documents(lines: Iterable[tuple[int, str]], path: Source) -> Iterator[Document]:
    paragraphs: list[str] = []
    first = size = number = 0
    for number, line in lines:
        if "\0" in line:
            raise InputError(
                f"{path} line {number} contains a NUL character: expected UTF-8 text, so convert a file in another "
                "encoding (iconv -f UTF-16 -t UTF-8), and leave out files that are not text"
            )
        if paragraph := line.strip():
            first = first if paragraphs else number
            paragraphs.append(paragraph)
            size += len(paragraph)
            if size > MAX_CHARACTERS:
                raise InputError(
                    f"{path} line {number}: the document that starts at line {first} has more than "
                    f"{MAX_CHARACTERS:,} characters; put a blank line between documents"
                )
        elif paragraphs:
            yield Document(path, first, tuple(paragraphs), number)
            paragraphs, size = [], 0
    if paragraphs:
        yield Document(path, first, tuple(paragraphs), number)


def _is_text(path: Source) -> bool:
    """Return whether a file in a folder is read, judging by its name."""
    suffix = content_suffix(path)
    name = os.path.basename(path)
    compressed = name.lower().endswith(COMPRESSED_SUFFIXES)
    return not name.startswith(".") and (suffix in JSON_LINES or suffix in PLAIN or (compressed and not suffix))


def _check(path: Source) -> None:
    """Raise InputError for a file that cannot be read, or not more than once."""
    if content_suffix(path) in TABLES:
        raise InputError(
            f"{path}: expected plain text or JSON lines (.txt, .jsonl), not {content_suffix(path)}; convert it"
        )
    if os.fspath(path) == STANDARD_INPUT or (os.path.exists(path) and not os.path.isfile(path)):
        raise InputError(f"{path} is not a regular file; a corpus is read more than once, so save it to a file first")
    with open_text(path) as lines:
        next(lines, None)
