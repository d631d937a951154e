"""Reads rows and columns; infers the delimiter and whether fields are quoted.

`open_table` loads a table. `read_text_column` reads one column row by row, in constant memory; an empty line is an
empty text in every format.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from regard.data.files import content_suffix, display_name, open_text
from regard.data.readers.records import Path, Record, Records, open_records, parse_object, string_at
from regard.errors import InputError, suggest
from regard.files.file_input import current_max_line, format_size
from regard.wording import is_count

TEXTS = (
    "text", "sentence", "comment_text", "comment", "review", "review_text", "tweet", "message", "sms", "content",
    "body", "document", "article", "utterance", "phrase", "query", "question", "description",
    "headline", "title", "input",
)  # fmt: skip
PAIRS = (
    ("sentence1", "sentence2"), ("sentence_1", "sentence_2"), ("sentence_a", "sentence_b"), ("question1", "question2"),
    ("premise", "hypothesis"), ("text_a", "text_b"), ("text1", "text2"), ("text_1", "text_2"), ("first", "second"),
    ("text", "second"), ("question", "sentence"), ("question", "context"), ("query", "passage"), ("query", "document"),
    ("s1", "s2"), ("#1_string", "#2_string"),
)  # fmt: skip
# MNLI and SNLI have `gold_label` and the labels of single annotators, label1 to label5.
LABELS = (
    "gold_label", "label", "labels", "is_duplicate", "target", "class", "category", "categories", "sentiment",
    "polarity", "intent", "topic", "quality", "judgment", "entailment_judgment", "score", "rating", "stars", "y",
)  # fmt: skip
SCORES = (
    "score", "similarity", "similarity_score", "relatedness_score", "label", "target", "rating", "stars", "value", "y",
)  # fmt: skip
_KNOWN = {*TEXTS, *LABELS, *SCORES, *(name for pair in PAIRS for name in pair)}
SAMPLE = 1000  # rows used for inference
_DESCRIPTIONS = {"\t": "tab-separated", ",": "comma-separated", ";": "semicolon-separated"}
_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";"}
_FORMATS = {".tsv": "TSV", ".tab": "TSV", ".csv": "CSV", ".jsonl": "JSON", ".ndjson": "JSON"}
# A quoted field between tabs or line breaks; quotes inside are doubled.
_FIELD = re.compile(r'(?:(?<=\t)|^)"([^"]*+(?:""[^"]*+)*+)"(?=\t|$)', re.MULTILINE)
# The csv module limits fields to 131,072 characters by default; the setting is global.
_MAX_FIELD = 2**31 - 1


@dataclass(frozen=True)
class TableOptions:
    """How to read a table. Options that are not given are inferred from the file."""

    columns: tuple[str, ...] | None = None
    header: bool | None = None
    delimiter: str | None = None
    quoting: bool | None = None

    @classmethod
    def parse(
        cls,
        columns: str | None,
        *,
        header: bool | None = None,
        delimiter: str | None = None,
        quoting: bool | None = None,
    ) -> TableOptions:
        """Parse command-line options: columns are separated by commas, and \\t is a tab."""
        names = tuple(name.strip() for name in columns.split(",")) if columns else None
        return cls(names, header, "\t" if delimiter == "\\t" else delimiter, quoting)


@dataclass(frozen=True)
class Table:
    """The nonblank rows of a file with their line numbers. `header` is None if the first row may be a header."""

    name: str
    description: str
    rows: list[list[object]]
    lines: list[int]
    header: list[str] | None
    delimiter: str | None = None
    unit: str = "line"

    def location(self, row: int) -> str:
        """Return file and line of a row, for errors."""
        return f"{self.name} {self.unit} {self.lines[row]}"


def open_table(path: Path, *, delimiter: str | None = None, quoting: bool | None = None) -> Table:
    """Read a table. Options that are not given are inferred from the suffix and the first rows."""
    records, lines = open_records(path, is_table=delimiter is not None)
    return table_of(lines, path, delimiter=delimiter, quoting=quoting) if records is None else _from_records(records)


def table_of(lines: Sequence[str], path: Path, *, delimiter: str | None = None, quoting: bool | None = None) -> Table:
    """Parse lines that were read from `path` (which may be standard input, and is not read again)."""
    name = display_name(path)
    sign = _delimiter(path, lines) if delimiter is None else _DELIMITERS.get(delimiter, delimiter)
    if sign is None:
        numbered: Iterator[tuple[int, list[str]]] = ((number, [line]) for number, line in enumerate(lines, start=1))
        return _from_rows(numbered, name, description="one text per line", delimiter=None)
    if len(sign) != 1:
        raise InputError(f"the delimiter should be one character, tab, comma or semicolon, got {sign!r}")
    quoted = (sign != "\t" or _is_quoted(lines)) if quoting is None else quoting
    description = f"{_DESCRIPTIONS.get(sign, f'separated by {sign!r}')}{', quoted' if quoted else ''}"
    remedy = (
        "not a valid quoted row ({error}); double the quotes inside a quoted field, or turn off quoting (--unquoted)"
    )
    rows = csv_rows(lines, name, delimiter=sign, remedy=remedy) if quoted else _split_lines(lines, sign)
    return _from_rows(rows, name, description=description, delimiter=sign)


def _delimiter(path: Path, lines: Sequence[str]) -> str | None:
    """Infer the delimiter from the rows and the suffix; the rows take precedence, since STS-B's .csv has tabs."""
    sample = list(islice((line for line in lines if line.strip()), SAMPLE))
    suffix = content_suffix(path)
    if suffix in (".tsv", ".tab") or 2 * sum("\t" in line for line in sample) > len(sample):
        return "\t"
    if suffix == ".csv":
        return next((sign for sign in ",;" if _has_equal_widths(sample, sign)), ",")
    return "," if sum(map(is_known, sample[0].split(","))) > 0 and "," in sample[0] else None


def _has_equal_widths(sample: Iterable[str], sign: str) -> bool:
    widen_fields()
    try:
        widths = {len(row) for row in csv.reader((line + "\n" for line in sample), delimiter=sign) if row}
    except csv.Error:
        return False
    return len(widths) == 1 and widths.pop() > 1


def _is_quoted(lines: Sequence[str]) -> bool:
    """Return whether the fields of a tab-separated file are quoted.

    In such a file every field with a quote is quoted, and either some fields contain doubled quotes, tabs or line
    breaks, or at least half of the lines have a quoted field. In other files, quotes are part of the text.
    """
    quoted = list(islice((number for number, line in enumerate(lines, start=1) if '"' in line), SAMPLE))
    if not quoted:
        return False
    length = quoted[-1] if len(quoted) == SAMPLE else len(lines)
    sample = "\n".join(lines[:length])
    if length < len(lines):  # the sample may end inside a field
        sample = re.sub(r'(?:(?<=\t)|^)"[^"]*+(?:""[^"]*+)*+\Z', "", sample, flags=re.MULTILINE)
    fields = _FIELD.findall(sample)
    if not fields or '"' in _FIELD.sub("", sample):
        return False
    return any('""' in field or "\t" in field or "\n" in field for field in fields) or 2 * len(quoted) >= length


def _from_rows(rows: Iterable[tuple[int, list[str]]], name: str, *, description: str, delimiter: str | None) -> Table:
    nonblank = [(number, row) for number, row in rows if any(map(str.strip, row))]
    if not nonblank:
        raise InputError(f"{name} is empty: expected at least one row")
    cells: list[list[object]] = [list(row) for _, row in nonblank]
    return Table(name, description, cells, [number for number, _ in nonblank], header=None, delimiter=delimiter)


def _from_records(records: Records) -> Table:
    numbered = list(records.numbered)
    if not numbered:
        raise InputError(f"{records.name} is empty: expected at least one object")
    keys = list(dict.fromkeys(key for _, record in numbered for key in record))
    rows = [[record.get(key) for key in keys] for _, record in numbered]
    numbers = [number for number, _ in numbered]
    return Table(records.name, records.description, rows, numbers, header=keys, unit=records.unit)


def column_at(record: Record, column: str, where: str) -> object:
    """Return the value of a column. Raises InputError with the existing names if there is none."""
    if column not in record:
        raise InputError(f"{where}: no {column!r}, which --columns names; {suggest(column, record)}")
    return record[column]


def rows_of(table: Table, columns: Sequence[str], *, header: bool | None) -> Iterator[tuple[int, Record]]:
    """Yield the rows as records with the given columns (names or numbers from 0) as additional keys.

    Unless `header` is given, there is a header if a column is named and not numbered.
    """
    has_header = any(not column.isdecimal() for column in columns) if header is None else header
    names = [str(cell).strip() for cell in table.rows[0]] if has_header else None
    indices = [column_index(table, names, column) for column in columns]
    if len(set(indices)) < len(indices):
        raise InputError(f"--columns should name each column once, got {', '.join(columns)}")
    for row in range(int(has_header), len(table.rows)):
        cells = table.rows[row]
        if len(cells) <= max(indices):
            raise InputError(
                f"{table.location(row)}: expected column {max(indices)}, but this row has {len(cells)} columns "
                f"({table.description}); fix the row or choose other --columns"
            )
        record = {} if names is None else dict(zip(names, cells, strict=False))
        yield table.lines[row], record | {column: cells[i] for column, i in zip(columns, indices, strict=True)}


def column_index(table: Table, names: Sequence[str] | None, column: str) -> int:
    """Return the index of a column. Raises InputError with the existing names if there is none."""
    if names is not None and column in names:
        return names.index(column)
    width = len(names) if names is not None else len(table.rows[0])
    if is_count(column) and int(column) < width:
        return int(column)
    if names is None:
        raise InputError(f"{table.name}: no column {column!r}; without a header, give a number from 0 to {width - 1}")
    hint = suggest(column, [name[:40] for name in names])
    raise InputError(f"{table.name}: no column {column!r}; {hint}; or a number from 0 to {width - 1}")


def fold(name: str) -> str:
    """Normalize a column name: case, spaces, hyphens and underscores."""
    return re.sub(r"[\s-]+", "_", name.strip().strip('"').casefold())


def is_known(name: str) -> bool:
    """Return whether this is a known column name, so that its row may be a header."""
    return fold(name) in _KNOWN


def csv_rows(lines: Iterable[str], name: str, *, delimiter: str = ",", remedy: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number (from 1) where each row starts, and its fields; a quoted field may span lines.

    Raises InputError with `remedy` for invalid CSV, and for a row of several lines that are longer in total than a line
    may be, which usually means that a quote is not closed.
    """
    widen_fields()
    limit = current_max_line()
    start, length = 1, 0

    def checked_lines() -> Iterator[str]:
        nonlocal length
        for line in lines:
            length += len(line) + 1
            if length > limit + 1 and reader.line_num >= start:
                raise InputError(
                    f"{name} line {start}: the row that starts here has a quote that is not closed within "
                    f"{format_size(limit)}; close it, or turn off quoting. If the row is really that "
                    "long, raise the limit: --max-line 1GiB"
                )
            yield line + "\n"

    reader = csv.reader(checked_lines(), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            yield start, row
            start, length = reader.line_num + 1, 0
    except csv.Error as error:
        raise InputError(f"{name} line {start}: {remedy.format(error=error)}") from None


def _split_lines(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    return ((number, line.split(delimiter)) for number, line in enumerate(lines, start=1))


def widen_fields() -> None:
    """Let the csv module read fields of any length; the length of lines is limited separately."""
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_FIELD))


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
            rows: Iterator[tuple[int, list[str]]]
            if (kind or _guess(first, name)) == "TSV":
                rows = _split_lines(lines, "\t")
            else:
                remedy = "not a CSV row ({error}); quote the field and double its quotes"
                rows = ((number, row or [""]) for number, row in csv_rows(lines, name, remedy=remedy))
            yield from _fields(rows, str(column), name)


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
