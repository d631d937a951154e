"""Reads lines, and records with keys from JSON lines, JSON lists and Parquet, each with its line or row number.

Readers load a file completely, because its format is inferred before the first example is created.
"""

from __future__ import annotations

import io
import json
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Generic, NamedTuple, TypeVar

from regard.data.compression import DAMAGE
from regard.data.files import (
    MAX_EXPANSION,
    MAX_HELD_BYTES,
    content_suffix,
    damaged,
    decode_lines,
    display_name,
    hold_lines,
    open_bounded,
)
from regard.data.readers.memory import RecordList, refuse_repeated
from regard.errors import InputError, check_choice, suggest
from regard.files.file_input import format_size, read_up_to
from regard.files.storage import RemoteFile

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
    text_columns: tuple[str, ...] = ()  # names of the texts of an example
    notes: tuple[str, ...] = ()  # what was read in another way than written

    def __post_init__(self) -> None:
        if not self.examples:
            raise InputError(f"{self.path} has no examples: expected at least one")

    @classmethod
    def joined(cls, parts: Sequence[ExampleSet[E]], path: str) -> ExampleSet[E]:
        """Return the examples of several files as one set, in which they have a number instead of a line."""
        first = parts[0]
        for part in parts:
            if part.text_columns != first.text_columns:
                raise InputError(
                    f"{part.path} has other columns ({part.description}) than {first.path} ({first.description}); name "
                    "them with --columns, or read the files one by one"
                )
        return cls(
            [example for part in parts for example in part.examples],
            path,
            f"{first.description}; {len(parts):,} files",
            dict(sum((Counter(part.dropped) for part in parts), Counter[str]())),
            text_columns=first.text_columns,
            notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        )

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
    with open_bounded(path) as (file, max_size):
        return _text_lines(file, path, None, max_size)


def _text_lines(file: IO[bytes], path: Path, encoding: str | None, max_size: int) -> list[str]:
    name = display_name(path)
    lines = hold_lines(refuse_binary(decode_lines(file, name, encoding), name), path, max_size)
    if not any(line.strip() for line in lines):
        raise InputError(f"{name} is empty: expected at least one example")
    return lines


def refuse_binary(lines: Iterable[str], name: str) -> Iterator[str]:
    """Yield the lines. Raises InputError for a zero byte."""
    for number, line in enumerate(lines, start=1):
        if "\0" in line:
            raise InputError(f"{name} line {number}: contains a zero byte; expected a text file, not a binary file")
        yield line


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


class MissingValue(InputError):
    """A record lacks a text or a label; readers may skip it."""


def keep_missing(missing: str | None, error: MissingValue, dropped: Counter[str]) -> None:
    """Count a record that lacks a value if such records are skipped, else raise the error."""
    check_choice("way with missing texts and labels", missing or "error", ("error", "skip", "keep"))
    if missing != "skip":
        raise InputError(f"{error}; or leave out such rows with --missing skip") from None
    dropped["has no text or label"] += 1


class Records(NamedTuple):
    """The records of a file with their numbers; `unit` is what is counted: lines, rows, or records of a JSON list."""

    name: str
    numbered: Iterator[tuple[int, Record]]
    description: str
    unit: str = "line"


def open_records(
    path: Path, *, is_table: bool = False, encoding: str | None = None
) -> tuple[Records | None, list[str]]:
    """Return the records in memory, or of a Parquet or JSON file (None for others), and the lines of a text file.

    JSON is detected by the suffix and the first line, unless the user says that the file `is_table`.
    """
    name = display_name(path)
    if isinstance(path, RecordList):
        return Records(name, iter(list(enumerate(path.records, start=1))), "rows in memory", "row"), []
    with open_bounded(path) as (file, max_size):
        if is_parquet(path, file):
            budget = MAX_HELD_BYTES + MAX_EXPANSION * (os.path.getsize(path) if os.path.isfile(path) else 0)
            return Records(name, iter(list(parquet_rows(file, path, budget))), "Parquet", "row"), []
        lines = _text_lines(file, path, encoding, max_size)
    first = next(line for line in lines if line.strip()).strip()
    return None if is_table else json_records(path, first, lines), lines


def json_records(path: Path, first: str, lines: Iterable[str], *, keep_blank: bool = False) -> Records | None:
    """Return the records in the lines of a file, the first of which that is not blank is `first`; None if not JSON.

    With `keep_blank`, a blank line of JSON lines is an empty record.
    """
    name = display_name(path)
    if not is_json(path, first):
        return None
    if first.lstrip().startswith("["):
        return Records(name, json_list(list(lines), name), "JSON list", "record")
    records = (
        (number, parse_object(line, f"{name} line {number}") if line.strip() else {})
        for number, line in enumerate(lines, start=1)
        if keep_blank or line.strip()
    )
    return Records(name, records, "JSON lines")


def is_parquet(path: Path, file: IO[bytes]) -> bool:
    """Return whether an open file is Parquet, by the suffix of its name or its first bytes."""
    try:
        start: bytes = file.peek(4)[:4] if hasattr(file, "peek") else b""
    except DAMAGE as error:
        raise InputError(damaged(path, error)) from None
    return content_suffix(path) in (".parquet", ".pq") or start == b"PAR1"


def is_json(path: Path, first: str) -> bool:
    """Return whether a file holds JSON records, by the suffix of its name and its first line that is not blank."""
    suffix, first = content_suffix(path), first.strip()
    if suffix in (".jsonl", ".ndjson") or (suffix == ".json" and first[0] in "[{"):
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


def json_list(lines: Sequence[str], name: str) -> Iterator[tuple[int, Record]]:
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


def parquet_rows(file: IO[bytes], path: Path, budget: int | None = None) -> Iterator[tuple[int, Record]]:
    """Yield the rows of a Parquet file, numbered from 1.

    A plain file is read a group of rows at a time; a compressed one is held in memory. `budget`: the bytes that all
    rows may take.
    """
    name = display_name(path)
    try:
        import pyarrow
        import pyarrow.parquet as reader
    except ImportError:
        raise InputError(f"{name} is Parquet, which needs pyarrow: pip install 'regard[data]'") from None
    plain = isinstance(file, io.BufferedReader) and isinstance(file.raw, io.FileIO | RemoteFile) and file.seekable()
    number = 0
    try:
        parquet = reader.ParquetFile(file if plain else io.BytesIO(_read_bounded(file, path)))
        refuse_repeated(parquet.schema_arrow.names, name)
        for batch in parquet.iter_batches(batch_size=_ROWS):
            size = batch.nbytes + _CELL * batch.num_rows * batch.num_columns
            budget = None if budget is None else budget - size
            if size > MAX_HELD_BYTES or (budget is not None and budget < 0):
                raise InputError(
                    f"{name} unpacks to far more than its size suggests; if that is intended, convert it to JSON lines "
                    "and name that file"
                )
            for number, record in enumerate(batch.to_pylist(), start=number + 1):  # noqa: B020
                yield number, record
    except (pyarrow.ArrowException, *DAMAGE, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{name} is not a Parquet file or is damaged ({reason}): copy or download it again") from None


def _read_bounded(file: IO[bytes], path: Path) -> bytes:
    limit = MAX_HELD_BYTES + MAX_EXPANSION * (os.path.getsize(path) if os.path.isfile(path) else 0)
    data = read_up_to(file, limit + 1)
    if len(data) > limit:
        raise InputError(f"{display_name(path)} unpacks to more than {format_size(limit)}; unpack it yourself")
    return data


def string_at(record: Record, key: str, where: str) -> str:
    """Return the string at a key. Raises InputError if there is none."""
    value = _value_at(record, key, where, str, "a string")
    refuse_halves(value, key, where)
    return value


def strings_at(record: Record, key: str, where: str) -> list[str]:
    """Return the list of strings at a key. Raises InputError if there is none."""
    value = _value_at(record, key, where, list, "a list of strings")
    for item in value:
        if not isinstance(item, str):
            raise InputError(f"{where}: {key!r} should hold strings, got {kind_of(item)}: {item!r}")
        refuse_halves(item, key, where)
    return value


def _value_at(record: Record, key: str, where: str, kind: type[E], expected: str) -> E:
    if key not in record:
        raise InputError(f"{where}: no key {key!r}; {suggest(key, record)}")
    value = record[key]
    if value is None:
        raise MissingValue(f"{where}: {key!r} should be {expected}, got null")
    if not isinstance(value, kind):
        raise InputError(f"{where}: {key!r} should be {expected}, got {kind_of(value)}")
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
    def unique(pairs: list[tuple[str, object]]) -> Record:
        record = dict(pairs)
        if len(record) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"{where}: the key {twice!r} is there twice; rename or remove one")
        return record

    try:
        return json.loads(text, object_pairs_hook=unique)
    except InputError:
        raise
    except json.JSONDecodeError as error:
        line = f" line {error.lineno}" if "\n" in text else ""
        raise InputError(
            f"{where}{line}: not JSON ({error.msg}, character {error.colno}); expected {expected}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}); expected {expected}") from None
