"""Reads records with keys from JSON lines, JSON lists and Parquet, each with its line or row number."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence

from regard.data.files import MAX_EXPANSION, MAX_HELD_BYTES, content_suffix, display_name, read_all_bytes
from regard.data.readers.read import Path, kind_of
from regard.errors import InputError, suggest
from regard.files.file_input import format_size

Record = dict[str, object]

MAX_DOCUMENT = 512 << 20  # characters of a single JSON document; SQuAD has 40 million
_JSON_LINES = (".jsonl", ".ndjson")
_ROWS = 4096  # rows of a Parquet file to read at a time
_CELL = 64  # bytes of overhead of a value in Python


def is_parquet(path: Path) -> bool:
    """Return whether a file is Parquet, judging by its suffix."""
    return content_suffix(path) in (".parquet", ".pq")


def looks_like_json(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file is JSON, judging by its suffix and first line."""
    first = next(line for line in lines if line.strip()).strip()
    if content_suffix(path) in _JSON_LINES or (content_suffix(path) == ".json" and first[0] in "[{"):
        return True
    return json_object(first) is not None


def json_object(line: str) -> Record | None:
    """Parse a line as a JSON object; None if it is not one."""
    if not (line.startswith("{") and line.endswith("}")):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_lines(lines: Sequence[str], name: str) -> Iterator[tuple[int, Record]]:
    """Yield the objects of JSON lines with their line numbers, or of a JSON list with their numbers in it."""
    first = next(line for line in lines if line.strip())
    if first.lstrip().startswith("["):
        document = json_whole(lines, name)
        if isinstance(document, list):
            for number, item in enumerate(document, start=1):
                yield number, _object(item, f"{name} record {number}")
        return
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f"{name} line {number}"
            yield number, _object(_parse(line, where, "one object per line"), where)


def json_whole(lines: Sequence[str], name: str, *, limit: int = MAX_DOCUMENT) -> object:
    """Parse the lines as one JSON value of at most `limit` characters, which needs several times that much memory."""
    if sum(len(line) + 1 for line in lines) > limit:
        raise InputError(
            f"{name} is one JSON document of more than {format_size(limit)}; convert it to JSON lines (.jsonl, one "
            "object per line), or split it"
        )
    return _parse("\n".join(lines), name, "one JSON document")


def parquet(path: Path) -> Iterator[tuple[int, Record]]:
    """Yield the rows of a Parquet file, numbered from 1."""
    name = display_name(path)
    try:
        import pyarrow
        import pyarrow.parquet as reader
    except ImportError:
        raise InputError(f"{name} is Parquet, which needs pyarrow: pip install 'regard[data]'") from None
    try:
        file = reader.ParquetFile(io.BytesIO(read_all_bytes(path)))
        rows: list[Record] = []
        budget = MAX_HELD_BYTES + MAX_EXPANSION * (os.path.getsize(path) if os.path.isfile(path) else 0)
        for batch in file.iter_batches(batch_size=_ROWS):
            budget -= batch.nbytes + _CELL * batch.num_rows * batch.num_columns
            if budget < 0:
                raise InputError(
                    f"{name} unpacks to far more than its size suggests; if that is intended, convert it to JSON lines "
                    "and name that file"
                )
            rows += batch.to_pylist()
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{name} is not a Parquet file or is damaged ({reason}): copy or download it again") from None
    yield from enumerate(rows, start=1)


def string_at(record: Record, key: str, where: str) -> str:
    """Return the string at a key. Raises InputError if there is none."""
    if key not in record:
        raise InputError(f"{where}: no {key!r}; {suggest(key, record)}")
    value = record[key]
    if not isinstance(value, str):
        raise InputError(f"{where}: {key!r} should be a string, got {kind_of(value)}")
    refuse_halves(value, key, where)
    return value


def strings_at(record: Record, key: str, where: str) -> list[str]:
    """Return the list of strings at a key. Raises InputError if there is none."""
    if key not in record:
        raise InputError(f"{where}: no {key!r}; {suggest(key, record)}")
    value = record[key]
    if not isinstance(value, list):
        raise InputError(f"{where}: {key!r} should be a list of strings, got {kind_of(value)}")
    for item in value:
        if not isinstance(item, str):
            raise InputError(f"{where}: {key!r} should hold strings, got {kind_of(item)}: {item!r}")
        refuse_halves(item, key, where)
    return value


def refuse_halves(text: str, key: str, where: str) -> None:
    """Raise InputError for lone surrogates, which JSON can contain but UTF-8 cannot encode."""
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InputError(f"{where}: {key!r} contains a lone surrogate (\\uD800), which is not a character; fix it")


def _object(value: object, where: str) -> Record:
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected a JSON object, got {kind_of(value)}")
    return value


def _parse(text: str, where: str, expected: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = f" line {error.lineno}" if "\n" in text else ""
        raise InputError(
            f"{where}{line}: not JSON ({error.msg}, character {error.colno}); expected {expected}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}); expected {expected}") from None
