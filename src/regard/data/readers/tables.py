"""Splits lines into rows and columns; infers the delimiter and whether fields are quoted.

`open_table` loads a table; `regard.data.rows` reads one row by row.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from regard.data.files import content_suffix, display_name
from regard.data.readers.memory import refuse_repeated
from regard.data.readers.records import Path, Record, Records, open_records
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
    ("text", "second"), ("text", "text_b"), ("question", "sentence"), ("question", "context"), ("query", "passage"),
    ("query", "document"), ("s1", "s2"), ("#1_string", "#2_string"),
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
SAMPLE_LINES = 10 * SAMPLE  # lines used to infer quoting
_DESCRIPTIONS = {"\t": "tab-separated", ",": "comma-separated", ";": "semicolon-separated"}
_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";"}
_COLUMN_NAME = re.compile(r"[\w#.-]+")  # in a first line that may as well be a text
# A quoted field between tabs or line breaks; quotes inside are doubled.
_FIELD = re.compile(r'(?:(?<=\t)|^)"([^"]*+(?:""[^"]*+)*+)"(?=\t|$)', re.MULTILINE)
# The csv module limits fields to 131,072 characters by default; the setting is global.
_MAX_FIELD = 2**31 - 1


Missing = Literal["error", "skip", "keep"]


@dataclass(frozen=True)
class TableOptions:
    """How to read a table. Options that are not given are inferred from the file.

    `missing` is what to do with rows that have no text or no label: "error" refuses the first one, "skip" leaves them
    out and counts them, "keep" gives them an empty answer. None is the default: "error" for what learns from rows or
    evaluates on them, "keep" for what answers row by row.
    """

    columns: tuple[str, ...] | None = None
    header: bool | None = None
    delimiter: str | None = None
    quoting: bool | None = None
    encoding: str | None = None
    missing: Missing | None = None

    @property
    def infers_format(self) -> bool:
        """Whether no option about the format of the file or its columns is given."""
        return self == TableOptions(encoding=self.encoding, missing=self.missing)

    @classmethod
    def parse(
        cls,
        columns: str | None,
        *,
        header: bool | None = None,
        delimiter: str | None = None,
        quoting: bool | None = None,
        encoding: str | None = None,
        missing: Missing | None = None,
    ) -> TableOptions:
        """Parse command-line options: columns are separated by commas, and \\t is a tab."""
        names = tuple(name.strip() for name in columns.split(",")) if columns else None
        return cls(names, header, "\t" if delimiter == "\\t" else delimiter, quoting, encoding, missing)


INFERRED = TableOptions()


@dataclass(frozen=True)
class Table:
    """The nonblank rows of a file with their line numbers. `header` is None if the first row may be a header.

    `blank` are the lines of blank rows, except those at the end of the file.
    """

    name: str
    description: str
    rows: list[list[object]]
    lines: list[int]
    header: list[str] | None
    delimiter: str | None = None
    unit: str = "line"
    blank: list[int] = field(default_factory=list)

    def location(self, row: int) -> str:
        """Return file and line of a row, for errors."""
        return f"{self.name} {self.unit} {self.lines[row]}"


def open_table(path: Path, options: TableOptions) -> Table:
    """Read a table. Options that are not given are inferred from the suffix and the first rows."""
    records, lines = open_records(path, is_table=options.delimiter is not None, encoding=options.encoding)
    return table_of(lines, path, options) if records is None else _from_records(records)


def table_of(lines: Sequence[str], path: Path, options: TableOptions) -> Table:
    """Parse lines that were read from `path` (which may be standard input, and is not read again)."""
    file_format = infer_format(lines[:SAMPLE_LINES], path, options)
    return _from_rows(file_format.rows(lines, display_name(path)), display_name(path), file_format)


@dataclass(frozen=True)
class TableFormat:
    """How lines are split into cells; without a delimiter, a line is one cell."""

    delimiter: str | None
    quoted: bool = False

    @property
    def description(self) -> str:
        if self.delimiter is None:
            return "one text per line"
        return f"{_DESCRIPTIONS.get(self.delimiter, f'separated by {self.delimiter!r}')}{', quoted' * self.quoted}"

    def rows(self, lines: Iterable[str], name: str) -> Iterator[tuple[int, list[str]]]:
        """Yield the line number of each row, from 1, and its cells. A blank line is a row with one blank cell."""
        if self.delimiter is None:
            return ((number, [line]) for number, line in enumerate(lines, start=1))
        if self.quoted:
            remedy = (
                "not a valid quoted row ({error}); double the quotes inside a quoted field, or turn off quoting "
                "(--unquoted)"
            )
            return csv_rows(lines, name, delimiter=self.delimiter, remedy=remedy)
        sign = self.delimiter
        return ((number, line.split(sign)) for number, line in enumerate(lines, start=1))


def infer_format(sample: Sequence[str], path: Path, options: TableOptions) -> TableFormat:
    """Infer the delimiter and the quoting from the first lines of a file and the suffix of its name."""
    delimiter, quoting = options.delimiter, options.quoting
    sign = _delimiter(path, sample) if delimiter is None else _DELIMITERS.get(delimiter, delimiter)
    if sign is None:
        return TableFormat(None)
    if len(sign) != 1:
        raise InputError(f"the delimiter should be one character, tab, comma or semicolon, got {sign!r}")
    return TableFormat(sign, (sign != "\t" or _is_quoted(sample)) if quoting is None else quoting)


def _delimiter(path: Path, lines: Sequence[str]) -> str | None:
    """Infer the delimiter from the rows and the suffix; the rows take precedence, since STS-B's .csv has tabs.

    A file without a telling suffix is a table if most lines have tabs, the first one too, or if its first line is a
    header: names without spaces, a known one among them. "First, we go" starts a text.
    """
    sample = list(islice((line for line in lines if line.strip()), SAMPLE))
    suffix = content_suffix(path)
    tabs = sum("\t" in line for line in sample)
    if suffix in (".tsv", ".tab") or ("\t" in sample[0] and 2 * tabs > len(sample)):
        return "\t"
    likely = [sign for sign in ",;" if _is_regular(sample, sign)]
    named = [sign for sign in likely if _starts_with_names(sample, sign)]
    if suffix == ".csv":
        return next(iter(named or likely), ",")
    return next(iter(named), None)


def _is_regular(sample: Sequence[str], sign: str) -> bool:
    """Return whether nearly all rows have the same number of cells, and more than one."""
    widen_fields()
    try:
        widths = [len(row) for row in csv.reader((line + "\n" for line in sample), delimiter=sign) if row]
    except csv.Error:
        return False
    if len(sample) == SAMPLE and len(widths) > 1:
        widths.pop()  # the sample may end inside of a quoted cell
    width, count = Counter(widths).most_common(1)[0] if widths else (0, 0)
    return width > 1 and count >= 0.9 * len(widths)


def _starts_with_names(sample: Sequence[str], sign: str) -> bool:
    names = [name.strip('"') for name in sample[0].split(sign)]
    return all(map(_COLUMN_NAME.fullmatch, names)) and any(map(is_known, names))


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
    if length < len(lines) or length == SAMPLE_LINES:  # the sample may end inside a field
        sample = re.sub(r'(?:(?<=\t)|^)"[^"]*+(?:""[^"]*+)*+\Z', "", sample, flags=re.MULTILINE)
    fields = _FIELD.findall(sample)
    if not fields or '"' in _FIELD.sub("", sample):
        return False
    return any('""' in field or "\t" in field or "\n" in field for field in fields) or 2 * len(quoted) >= length


def _from_rows(rows: Iterable[tuple[int, list[str]]], name: str, file_format: TableFormat) -> Table:
    cells: list[list[object]] = []
    lines: list[int] = []
    blank: list[int] = []
    for number, row in rows:
        if any(map(str.strip, row)):
            cells.append(list(row))
            lines.append(number)
        else:
            blank.append(number)
    if not cells:
        raise InputError(f"{name} is empty: expected at least one row")
    inside = [number for number in blank if lines[0] < number < lines[-1]]
    return Table(name, file_format.description, cells, lines, None, file_format.delimiter, blank=inside)


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
    refuse_repeated(names or [], table.name)
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


def unique_names(cells: Iterable[object]) -> list[str]:
    """Return the names of a header, each once: a second `text` is `text_2`."""
    written = [str(cell).strip() for cell in cells]
    names: list[str] = []
    for name in written:
        number, unique = 1, name
        while unique in names or (number > 1 and unique in written):
            number += 1
            unique = f"{name or 'column'}_{number}"
        names.append(unique)
    return names


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


def widen_fields() -> None:
    """Let the csv module read fields of any length; the length of lines is limited separately."""
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_FIELD))
