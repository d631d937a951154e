"""Files and folders to documents, one at a time.

Memory is that of the largest document, whatever the size of the files.

Plain text has one paragraph a line and a blank line between documents, and a file's end ends a document. In JSON lines
every object is a document, and line ends inside its text separate paragraphs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.data.files import COMPRESSED_SUFFIXES, STANDARD_INPUT, content_suffix, open_text
from regard.data.text_column import read_text_column
from regard.errors import InputError

__all__ = ["Document", "Sources", "find_sources", "read_documents", "read_file_documents"]

JSON_LINES = (".jsonl", ".ndjson")
PLAIN = (".txt", ".text")
TABLES = (".csv", ".tsv", ".tab", ".json", ".parquet", ".zip", ".tar", ".html", ".xml", ".pdf")
LONGEST = 1 << 27  # characters: no document is that long, but a file without blank lines may be


@dataclass(frozen=True, slots=True)
class Document:
    """Paragraphs that belong together, none of them blank, and where they begin: the file and its line, from 1."""

    source: Path
    line: int
    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class Sources:
    """The files of a corpus in the order of reading, and those in its folders that are no text by their name."""

    files: tuple[Path, ...]
    skipped: tuple[Path, ...]


def read_documents(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, key: str = "text"
) -> Iterator[Document]:
    """The documents of files and folders, in order; `key` names the text in JSON lines.

    InputError names the file and, but for a missing one, the line: bytes that are not UTF-8, JSON that is none, a
    packed file that breaks off. An empty corpus gives no document.
    """
    for path in find_sources(paths).files:
        yield from read_file_documents(path, key=key)


def find_sources(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Sources:
    """The files that are named and those below the folders that are named, a folder's sorted by their paths."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise InputError("a corpus needs at least one file or folder; none was named")
    files: list[Path] = []
    skipped: list[Path] = []
    for path in map(Path, given):
        if path.is_dir():
            inside = sorted(Path(parent, name) for parent, _, names in os.walk(path) for name in names)
            texts = [file for file in inside if _is_text(file)]
            if not texts:
                raise InputError(f"{path} holds no text: expected .txt or .jsonl files, which may be packed")
            files += texts
            skipped += [file for file in inside if not _is_text(file)]
        else:
            files.append(path)
    seen: dict[str, Path] = {}
    for file in files:
        _check(file)
        if (place := os.path.realpath(file)) in seen:
            raise InputError(f"{file} and {seen[place]} are the same file; name it once")
        seen[place] = file
    return Sources(tuple(files), tuple(skipped))


def read_file_documents(path: Path, *, key: str = "text") -> Iterator[Document]:
    """The documents of one file."""
    if content_suffix(path) in JSON_LINES:
        yield from _objects(path, key)
    else:
        yield from _blocks(path)


def _objects(path: Path, key: str) -> Iterator[Document]:
    for line, text in read_text_column(path, column=key):
        paragraphs = tuple(part.strip() for part in text.split("\n"))
        if found := tuple(filter(None, paragraphs)):
            yield Document(path, line, found)


def _blocks(path: Path) -> Iterator[Document]:
    paragraphs: list[str] = []
    first = size = 0
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if "\0" in line:
                raise InputError(
                    f"{path} line {number} holds the character 0, which no text does: expected UTF-8, so convert a "
                    "file of another encoding (iconv -f UTF-16 -t UTF-8), and leave out one that is no text"
                )
            if paragraph := line.strip():
                first = first if paragraphs else number
                paragraphs.append(paragraph)
                size += len(paragraph)
                if size > LONGEST:
                    raise InputError(
                        f"{path} line {number}: the document that begins at line {first} has more than {LONGEST:,} "
                        "characters; put a blank line between documents"
                    )
            elif paragraphs:
                yield Document(path, first, tuple(paragraphs))
                paragraphs, size = [], 0
    if paragraphs:
        yield Document(path, first, tuple(paragraphs))


def _is_text(path: Path) -> bool:
    """Whether a file in a folder is taken: by its name alone, so that pictures and scripts beside texts do no harm."""
    suffix = content_suffix(path)
    packed = path.suffix.lower() in COMPRESSED_SUFFIXES
    return not path.name.startswith(".") and (suffix in JSON_LINES or suffix in PLAIN or (packed and not suffix))


def _check(path: Path) -> None:
    """Refuse before any work what cannot be read, or only once."""
    if content_suffix(path) in TABLES:
        raise InputError(
            f"{path}: expected plain text or JSON lines (.txt, .jsonl), not {content_suffix(path)}; convert it"
        )
    if os.fspath(path) == STANDARD_INPUT or (path.exists() and not path.is_file()):
        raise InputError(f"{path} is not a regular file; a corpus is read more than once, so save it to a file first")
    with open_text(path) as lines:
        next(lines, None)
