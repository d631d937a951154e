"""Reads texts with their line numbers: one per line, or one column of a TSV, CSV or JSON-lines file.

Reads one row at a time, in constant memory. An empty line is the text "" in every format; the caller decides what to do
with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain

from regard.data.files import content_suffix, display_name, open_text
from regard.data.readers.records import parse_object, string_at
from regard.data.readers.tables import csv_rows
from regard.errors import InputError, suggest
from regard.wording import is_count

_FORMATS = {".tsv": "TSV", ".tab": "TSV", ".csv": "CSV", ".jsonl": "JSON", ".ndjson": "JSON"}


def read_text_column(path: str | os.PathLike[str], *, column: str | int | None = None) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text). `column` is a number from 0, a name in the first row, or a JSON key.

    If `column` is a name, the first row is a header; if it is a number, it is not. TSV fields are not quoted; CSV
    fields may be, and a quoted text may span lines (it has the number of its first line). Without `column` every line
    is a text, and a file with several columns, judging by its suffix and first line, is refused.
    """
    with open_text(path) as lines:
        first = next(lines, None)
        if first is None:
            return
        name, lines = display_name(path), chain([first], lines)
        kind = _FORMATS.get(content_suffix(path))
        if column is None:
            _refuse_columns(first, kind, name)
            yield from enumerate(lines, start=1)
        elif (kind or _guess(first, name)) == "JSON":
            yield from _keys(lines, str(column), name)
        else:
            tsv = (kind or _guess(first, name)) == "TSV"
            yield from _fields(_tsv(lines) if tsv else _csv(lines, name), str(column), name)


def _refuse_columns(first: str, kind: str | None, name: str) -> None:
    if kind == "JSON":
        raise InputError(f"{name} contains JSON: name the key of the text with --column KEY")
    if kind is not None:
        row = first.split("\t" if kind == "TSV" else ",")
        if len(row) > 1:
            raise InputError(
                f"{name} line 1 has {len(row)} columns: name the column of the text with --column, by number from 0 to "
                f"{len(row) - 1} or by its name in the first row; if every line is one text, use the suffix .txt"
            )


def _guess(first: str, name: str) -> str:
    if first.lstrip().startswith("{"):
        return "JSON"
    if "\t" in first:
        return "TSV"
    if "," in first:
        return "CSV"
    raise InputError(f"{name} line 1: no tab, comma or JSON object, so there are no columns; leave out --column")


def _tsv(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    return ((number, line.split("\t")) for number, line in enumerate(lines, start=1))


def _csv(lines: Iterator[str], name: str) -> Iterator[tuple[int, list[str]]]:
    remedy = "not a CSV row ({error}); quote the field and double its quotes"
    return ((number, row or [""]) for number, row in csv_rows(lines, name, remedy=remedy))


def _fields(rows: Iterator[tuple[int, list[str]]], column: str, name: str) -> Iterator[tuple[int, str]]:
    if is_count(column):
        index = int(column)
    else:
        _, header = next(rows)
        if column not in header:
            short = [field if len(field) <= 30 else field[:29] + "…" for field in header]
            raise InputError(
                f"{name} line 1: no column {column!r} in the first row; {suggest(column, short)}; "
                f"or give its number, 0 to {len(header) - 1}"
            )
        index = header.index(column)
    for number, row in rows:
        if index < len(row):
            yield number, row[index]
        elif row == [""]:
            yield number, ""
        else:
            raise InputError(
                f"{name} line {number}: expected column {column}, but this row has columns 0 to {len(row) - 1}; "
                "fix the row or choose another --column"
            )


def _keys(lines: Iterator[str], key: str, name: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, start=1):
        where = f"{name} line {number}"
        yield number, string_at(parse_object(line, where), key, where) if line.strip() else ""
