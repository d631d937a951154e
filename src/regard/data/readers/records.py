"""Reads lines, and records with keys from JSON lines, JSON lists and Parquet, each with its line or row number.

Readers load a file completely, because its format is inferred before the first example is created.
"""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

from regard.data.files import (
    MAX_EXPANSION,
    MAX_HELD_BYTES,
    content_suffix,
    display_name,
    read_all_bytes,
    read_all_lines,
)
from regard.errors import InputError, suggest
from regard.files.file_input import format_size

E = TypeVar("E")
Path = str | os.PathLike[str]
Record = dict[str, object]

MAX_DOCUMENT = 512 << 20  # characters of a single JSON document; SQuAD has 40 million
_ROWS = 4096  # rows of a Parquet file to read at a time
_CELL = 64  # bytes of overhead of a value in Python


@dataclass(frozen=True)
class ExampleSet(Generic[E]):
    """Examples and where they come from. `description` says in one line how the file was read."""

    examples: list[E]
    path: str
    description: str
    dropped: dict[str, int] = field(default_factory=dict)  # reason -> count
    lines: list[int] = field(default_factory=list)  # first line of each example, from 1
    unit: str = "line"  # what `lines` counts

    def __post_init__(self) -> None:
        if not self.examples:
            raise InputError(f"{self.path} has no examples: expected at least one")

    def location(self, example: int) -> str:
        """Return where an example starts, for errors: "line 12"."""
        return f"{self.unit} {self.lines[example]:,}" if self.lines else f"example {example + 1:,}"

    def sample(self, count: int) -> ExampleSet[E]:
        """Sample examples in their order, always the same ones."""
        indices = sorted(random.Random(0).sample(range(len(self.examples)), count))
        examples = [self.examples[index] for index in indices]
        lines = [self.lines[index] for index in indices] if self.lines else []
        return replace(self, examples=examples, lines=lines, description=f"{self.description}; {count:,} sampled")


def read_lines(path: Path) -> list[str]:
    """Return all lines of a text file. Raises InputError if it is empty or binary."""
    name = display_name(path)
    lines = read_all_lines(path)
    for number, line in enumerate(lines, start=1):
        if "\0" in line:
            raise InputError(f"{name} line {number}: contains a zero byte; expected a text file, not a binary file")
    if not any(line.strip() for line in lines):
        raise InputError(f"{name} is empty: expected at least one example")
    return lines


def kind_of(value: object) -> str:
    """Return the JSON type of a value, for errors."""
    names: dict[type, str] = {
        list: "a list",
        dict: "an object",
        bool: "true or false",
        type(None): "null",
        str: "a string",
    }
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


class Records(NamedTuple):
    """The records of a file with their numbers; `unit` is what is counted: lines, rows, or records of a JSON list."""

    name: str
    numbered: Iterator[tuple[int, Record]]
    description: str
    unit: str = "line"


def open_records(path: Path, *, is_table: bool = False) -> tuple[Records | None, list[str]]:
    """Return the records of a Parquet or JSON file (None for other files), and the lines of a text file.

    JSON is detected by the suffix and the first line, unless the user says that the file `is_table`.
    """
    name = display_name(path)
    suffix = content_suffix(path)
    if suffix in (".parquet", ".pq"):
        return Records(name, _parquet_rows(path), "Parquet", "row"), []
    lines = read_lines(path)
    first = next(line for line in lines if line.strip()).strip()
    is_json = suffix in (".jsonl", ".ndjson") or (suffix == ".json" and first[0] in "[{")
    if is_table or not (is_json or json_object(first) is not None):
        return None, lines
    if first.startswith("["):
        return Records(name, _json_list(lines, name), "JSON list", "record"), lines
    return Records(name, _json_lines(lines, name), "JSON lines"), lines


def json_object(line: str) -> Record | None:
    """Parse a line as a JSON object; None if it is not one."""
    if not (line.startswith("{") and line.endswith("}")):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _json_lines(lines: Sequence[str], name: str) -> Iterator[tuple[int, Record]]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, parse_object(line, f"{name} line {number}")


def _json_list(lines: Sequence[str], name: str) -> Iterator[tuple[int, Record]]:
    document = json_whole(lines, name)
    for number, item in enumerate(document if isinstance(document, list) else [], start=1):
        yield number, _object(item, f"{name} record {number}")


def parse_object(line: str, where: str) -> Record:
    """Parse a line of JSON lines. Raises InputError if it is not an object."""
    return _object(_parse(line, where, "one object per line"), where)


def json_whole(lines: Sequence[str], name: str) -> object:
    """Parse the lines as one JSON value of bounded length, which needs several times that much memory."""
    if sum(len(line) + 1 for line in lines) > MAX_DOCUMENT:
        raise InputError(
            f"{name} is one JSON document of more than {format_size(MAX_DOCUMENT)}; convert it to JSON lines (.jsonl, "
            "one object per line), or split it"
        )
    return _parse("\n".join(lines), name, "one JSON document")


def _parquet_rows(path: Path) -> Iterator[tuple[int, Record]]:
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
    value = _value_at(record, key, where)
    if not isinstance(value, str):
        raise InputError(f"{where}: {key!r} should be a string, got {kind_of(value)}")
    refuse_halves(value, key, where)
    return value


def strings_at(record: Record, key: str, where: str) -> list[str]:
    """Return the list of strings at a key. Raises InputError if there is none."""
    value = _value_at(record, key, where)
    if not isinstance(value, list):
        raise InputError(f"{where}: {key!r} should be a list of strings, got {kind_of(value)}")
    for item in value:
        if not isinstance(item, str):
            raise InputError(f"{where}: {key!r} should hold strings, got {kind_of(item)}: {item!r}")
        refuse_halves(item, key, where)
    return value


def _value_at(record: Record, key: str, where: str) -> object:
    if key not in record:
        raise InputError(f"{where}: no key {key!r}; {suggest(key, record)}")
    return record[key]


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
