"""Reads rows and columns; infers the delimiter and whether fields are quoted.

`columns` infers the header and the roles of the columns.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from regard.data.csv_rows import csv_rows, widen_fields
from regard.data.files import content_suffix, display_name
from regard.data.readers.read import Path, read_lines
from regard.data.readers.records import Record, is_parquet, json_lines, looks_like_json, parquet
from regard.errors import InputError, suggest
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
    "score",
    "similarity",
    "similarity_score",
    "relatedness_score",
    "label",
    "target",
    "rating",
    "stars",
    "value",
    "y",
)
_KNOWN = {*TEXTS, *LABELS, *SCORES, *(name for pair in PAIRS for name in pair)}


def fold(name: str) -> str:
    """Normalize a column name: case, spaces, hyphens and underscores."""
    return re.sub(r"[\s-]+", "_", name.strip().strip('"').casefold())


def is_known(name: str) -> bool:
    """Return whether this is a known column name, so that its row may be a header."""
    return fold(name) in _KNOWN


SAMPLE = 1000  # rows used for inference
_DESCRIPTIONS = {"\t": "tab-separated", ",": "comma-separated", ";": "semicolon-separated"}
_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";"}


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


def open_table(
    path: Path, *, delimiter: str | None = None, quoting: bool | None = None, max_line: int | None = None
) -> Table:
    """Read a table. Options that are not given are inferred from the suffix and the first rows."""
    name = display_name(path)
    if is_parquet(path):
        return _from_records(parquet(path), name, description="Parquet", unit="row")
    lines = read_lines(path, max_line=max_line)
    if delimiter is None and looks_like_json(path, lines):
        is_list = next(line for line in lines if line.strip()).lstrip().startswith("[")
        description, unit = ("JSON list", "record") if is_list else ("JSON lines", "line")
        return _from_records(json_lines(lines, name), name, description=description, unit=unit)
    return table_of(lines, path, delimiter=delimiter, quoting=quoting, max_line=max_line)


def table_of(
    lines: Sequence[str],
    path: Path,
    *,
    delimiter: str | None = None,
    quoting: bool | None = None,
    max_line: int | None = None,
) -> Table:
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
    rows = _quoted(lines, sign, name, max_line) if quoted else _plain(lines, sign)
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


# A quoted field between tabs or line breaks; quotes inside are doubled.
_FIELD = re.compile(r'(?:(?<=\t)|^)"([^"]*+(?:""[^"]*+)*+)"(?=\t|$)', re.MULTILINE)


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


def _plain(lines: Iterable[str], sign: str) -> Iterator[tuple[int, list[str]]]:
    return ((number, line.split(sign)) for number, line in enumerate(lines, start=1))


def _quoted(lines: Iterable[str], sign: str, name: str, max_line: int | None = None) -> Iterator[tuple[int, list[str]]]:
    remedy = (
        "not a valid quoted row ({error}); double the quotes inside a quoted field, or turn off quoting (--unquoted)"
    )
    return csv_rows(lines, name, delimiter=sign, remedy=remedy, max_line=max_line)


def _from_rows(rows: Iterable[tuple[int, list[str]]], name: str, *, description: str, delimiter: str | None) -> Table:
    nonblank = [(number, row) for number, row in rows if any(map(str.strip, row))]
    if not nonblank:
        raise InputError(f"{name} is empty: expected at least one row")
    cells: list[list[object]] = [list(row) for _, row in nonblank]
    return Table(name, description, cells, [number for number, _ in nonblank], header=None, delimiter=delimiter)


def _from_records(records: Iterable[tuple[int, Record]], name: str, *, description: str, unit: str) -> Table:
    numbered = list(records)
    if not numbered:
        raise InputError(f"{name} is empty: expected at least one object")
    keys = list(dict.fromkeys(key for _, record in numbered for key in record))
    rows = [[record.get(key) for key in keys] for _, record in numbered]
    return Table(name, description, rows, [number for number, _ in numbered], header=keys, unit=unit)


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
