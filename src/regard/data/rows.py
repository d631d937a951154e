"""Reads the rows of a table one after the other, for every command that answers row by row.

    rows = open_rows("reviews.csv", TableOptions())      # a file, "-", a list of texts or pairs, a DataFrame
    rows.description                                     # "comma-separated, quoted, header, text = review"
    rows.columns, rows.text_columns                      # ("id", "review"), ("review",)
    for row in rows:                                     # every row in its order, blank ones too
        row.number, row.line, row.texts, row.values      # 0, 2, ("a fine film",), {"id": "7", "review": "a fine film"}
    for row in rows.read("skip"): ...                    # the one rule for rows without a text: error, skip or keep
    rows.missing_note("skip")                            # "3 rows have no text and were skipped; the first is ..."

Files are CSV, TSV, JSON lines, a JSON list, Parquet, or one text per line; compressed or not. The first rows decide
which columns hold the texts, by the rules of `regard.data.readers.read_text_examples`; then rows are read as they are
asked for, in constant memory (a JSON list is held in memory, and so is a compressed Parquet file).

A folder or a glob is one sequence of the rows of its files, in sorted order: the first file decides which columns hold
the texts, and the others must have them too. Files may be on an object store (`s3://bucket/folder`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from regard.data.files import decode_lines, display_name, files_of, open_bytes
from regard.data.labels import is_missing
from regard.data.readers.memory import frame_records
from regard.data.readers.records import (
    Record,
    Records,
    is_parquet,
    json_records,
    kind_of,
    parquet_rows,
    refuse_binary,
    refuse_halves,
)
from regard.data.readers.roles import RowWidths, decide_texts, header_of, text_cell
from regard.data.readers.tables import SAMPLE, SAMPLE_LINES, Missing, Table, TableOptions, infer_format
from regard.data.text_inputs import DataFrameSource, read_items
from regard.errors import InputError, check_choice
from regard.wording import count_of

PLAIN = ("one text per line", "list of texts", "list of pairs")  # descriptions of sources without columns
RowSource = Any  # a path or "-", a sequence of texts or pairs, a Series or an array of them, or a DataFrame
_SAMPLE_CHARACTERS = 1 << 24


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table.

    `number` counts every row from 0, blank ones too, but not the header. `line` is the line of the file where the row
    starts, from 1, or `number` + 1 where there are no lines. A text is None where its cell is missing or blank.
    `values` are the cells that the row has, by the name of their column. `location` is the file and the line of a row
    of several files, which are counted through as one.
    """

    number: int
    line: int
    texts: tuple[str | None, ...]
    values: Mapping[str, object]
    location: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether a text is missing."""
        return None in self.texts


class RowReader:
    """The rows of a source, which can be read once. Closes the file at the end, or when it is garbage-collected."""

    def __init__(
        self,
        rows: Iterator[Row],
        *,
        name: str,
        columns: Sequence[str],
        text_columns: Sequence[str],
        description: str,
        unit: str,
        num_files: int = 1,
    ) -> None:
        self.name, self.columns, self.text_columns = name, tuple(columns), tuple(text_columns)
        self.description, self.unit = description + (f"; {num_files:,} files" if num_files > 1 else ""), unit
        self.num_missing = 0  # rows without a text so far
        self._first_missing = ""
        self.is_table = description not in PLAIN  # whether there are columns to choose from
        self._rows = rows

    def __iter__(self) -> Iterator[Row]:
        return self._rows

    def location(self, row: Row) -> str:
        """Return where a row starts, for messages: "reviews.csv line 12"."""
        return row.location or f"{self.name} {self.unit} {row.line:,}"

    def read(self, missing: Missing = "keep") -> Iterator[Row]:
        """Yield the rows, and count those without a text: "error" refuses the first, "skip" leaves them out."""
        check_choice("way with missing texts", missing, ("keep", "skip", "error"))
        for row in self._rows:
            if row.is_missing:
                self.num_missing += 1
                self._first_missing = self._first_missing or self.location(row)
                if missing == "error":
                    name = self.text_columns[row.texts.index(None)]
                    raise InputError(
                        f"{self.location(row)} has no text ({name}); fix it, or choose --missing keep (an empty "
                        "answer) or --missing skip"
                    )
                if missing == "skip":
                    continue
            yield row

    def missing_note(self, missing: Missing) -> str | None:
        """Say how many of the rows that were read have no text, and what became of them."""
        if not self.num_missing:
            return None
        one = self.num_missing == 1
        what = (
            ("gets" if one else "get") + " no answer" if missing == "keep" else ("was" if one else "were") + " skipped"
        )
        first = f": {self._first_missing}" if one else f"; the first is {self._first_missing}"
        return f"{count_of(self.num_missing, 'row')} without a text {what}{first}"


def open_rows(
    source: RowSource,
    options: TableOptions | None = None,
    *,
    num_texts: int | None = 1,
    names: Sequence[str] = (),
    sample: int = SAMPLE,
) -> RowReader:
    """Open the rows of a source and infer which columns hold the texts; see `RowReader`.

    `num_texts` per row: 1, 2, or None for either. `names` are column names to prefer, such as those a model was trained
    on. `sample` is the number of rows to read for the inference; 1 for a sender that waits for each answer.
    """
    options = options or TableOptions()
    source = source.frame if isinstance(source, DataFrameSource) else source
    if isinstance(source, str | os.PathLike):
        if files := files_of(source):
            return _open_files(files, display_name(source), options, num_texts, names, sample)
        return _open_file(source, options, num_texts, names, sample)
    if hasattr(source, "columns"):
        _, records = frame_records(source)
        numbered = Records("the DataFrame", enumerate(records, start=1), "DataFrame", "row")
        return _reader_of_records(numbered, options, num_texts, names, SAMPLE, ExitStack())
    return _open_list(source, options, num_texts, names)


def _open_file(
    path: str | os.PathLike[str], options: TableOptions, num_texts: int | None, names: Sequence[str], sample: int
) -> RowReader:
    name = display_name(path)
    with ExitStack() as stack:
        file = stack.enter_context(open_bytes(path))
        if is_parquet(path, file):
            records = Records(name, parquet_rows(file, path), "Parquet", "row")
            return _reader_of_records(records, options, num_texts, names, sample, stack.pop_all())
        lines = refuse_binary(decode_lines(file, name, options.encoding), name)
        head = _head(lines, sample)
        first = next((line for line in head if line.strip()), None)
        if first is None:
            raise InputError(f"{name} is empty: expected at least one row")
        lines = chain(head, lines)
        if options.delimiter is None and (found := json_records(path, first, lines, keep_blank=True)):
            return _reader_of_records(found, options, num_texts, names, sample, stack.pop_all())
        table_format = infer_format(head, path, options)
        table = Table(name, table_format.description, [], [], None, table_format.delimiter)
        cells = ((number, list[object](row)) for number, row in table_format.rows(lines, name))
        return _reader_of_cells(table, cells, options, num_texts, names, sample, stack.pop_all())


def _open_files(
    files: Sequence[str], name: str, options: TableOptions, num_texts: int | None, names: Sequence[str], sample: int
) -> RowReader:
    """The rows of several files, one after the other; only one is open at a time."""
    first = _open_file(files[0], options, num_texts, names, sample)

    def rows() -> Iterator[Row]:
        number = 0
        for index, file in enumerate(files):
            reader = first if index == 0 else _open_file(file, options, num_texts, first.text_columns, sample)
            if (reader.is_table, reader.text_columns) != (first.is_table, first.text_columns):
                raise InputError(
                    f"{reader.name} has its texts in {' and '.join(reader.text_columns)} ({reader.description}), but "
                    f"{first.name} in {' and '.join(first.text_columns)} ({first.description}); name the columns with "
                    "--columns, or read the files one by one"
                )
            for row in reader:
                yield replace(row, number=number, line=number + 1, location=reader.location(row))
                number += 1

    return RowReader(
        rows(),
        name=name,
        columns=first.columns,
        text_columns=first.text_columns,
        description=first.description,
        unit="row",
        num_files=len(files),
    )


def _head(lines: Iterator[str], sample: int) -> list[str]:
    """Read lines to infer the format from: for a sample of one row, up to the first that is not blank."""
    head: list[str] = []
    most, room, found = SAMPLE_LINES if sample > 1 else 1, _SAMPLE_CHARACTERS, False
    for line in lines:
        head.append(line)
        room -= len(line)
        found = found or bool(line.strip())
        if found and (len(head) >= most or room < 0):
            break
    return head


def _reader_of_cells(
    table: Table,
    cells: Iterator[tuple[int, list[object]]],
    options: TableOptions,
    num_texts: int | None,
    names: Sequence[str],
    sample: int,
    stack: ExitStack,
) -> RowReader:
    """The rows of a `table` that has none yet."""
    head: list[tuple[int, list[object]]] = []

    def pull(count: int) -> None:
        """Read rows until `count` of them are not blank."""
        while len(table.rows) < count and (item := next(cells, None)):
            head.append(item)
            if not all(map(is_missing, item[1])):
                table.lines.append(item[0])
                table.rows.append(item[1])

    pull(sample)
    if len(table.rows) == 1 and header_of(table, options.columns, options.header)[1] == 1:
        pull(2)  # the first row after the header
    roles = decide_texts(table, num_texts=num_texts, names=names, columns=options.columns, header=options.header)
    start = table.lines[0] if roles.first else 0  # the line of the header
    widths = RowWidths.of(table, roles)
    names_of_all = [roles.name(index) for index in range(widths.width)]
    plain = table.delimiter is None and roles.header is None
    if plain:
        names_of_all = ["text"]

    def rows() -> Iterator[Row]:
        with stack:
            data = ((line, row) for line, row in chain(head, cells) if line > start)
            for number, (line, row) in enumerate(data):
                where = f"{table.name} {table.unit} {line}"
                texts: tuple[str | None, ...]
                if all(map(is_missing, row)):
                    texts = (None,) * len(roles.texts)
                else:
                    widths.check(row, where)
                    texts = tuple(
                        None if is_missing(row[index]) else text_cell(roles, row, index, where) for index in roles.texts
                    )
                yield Row(number, line, texts, dict(zip(names_of_all, row, strict=False)))

    return RowReader(
        rows(),
        name=table.name,
        columns=names_of_all,
        text_columns=["text"] if plain else roles.text_names,
        description=roles.description,
        unit=table.unit,
    )


def _reader_of_records(
    records: Records, options: TableOptions, num_texts: int | None, names: Sequence[str], sample: int, stack: ExitStack
) -> RowReader:
    head: list[tuple[int, Record]] = []
    for item in records.numbered:
        head.append(item)
        if len(head) >= sample and any(record for _, record in head):
            break
    keys = list(dict.fromkeys(key for _, record in head for key in record))
    if not keys:
        raise InputError(f"{records.name} is empty: expected at least one object")
    cells = [[record.get(key) for key in keys] for _, record in head if record]
    lines = [line for line, record in head if record]
    table = Table(records.name, records.description, cells, lines, keys, unit=records.unit)
    roles = decide_texts(table, num_texts=num_texts, names=names, columns=options.columns, header=None)

    def rows() -> Iterator[Row]:
        with stack:
            for number, (line, record) in enumerate(chain(head, records.numbered)):
                where = f"{table.name} {table.unit} {line}"
                texts = tuple(_text(record.get(name), name, where) for name in roles.text_names)
                yield Row(number, line, texts, record)

    return RowReader(
        rows(),
        name=table.name,
        columns=keys,
        text_columns=roles.text_names,
        description=roles.description,
        unit=table.unit,
    )


def _text(value: object, name: str, where: str) -> str | None:
    if is_missing(value):
        return None
    if not isinstance(value, str):
        raise InputError(f"{where}: {name} should be a text, got {kind_of(value)}: {str(value)[:60]}")
    refuse_halves(value, name, where)
    return value


def _open_list(items: Any, options: TableOptions, num_texts: int | None, names: Sequence[str]) -> RowReader:
    """Texts, pairs of texts, or records: dicts from names of columns to values."""
    items = read_items(items)
    if not items:
        raise InputError("there are no texts: expected at least one")
    if any(isinstance(item, Mapping) for item in items):
        numbered = ((number, _record(item, number)) for number, item in enumerate(items, start=1))
        records = Records("the list", numbered, "list of records", "item")
        return _reader_of_records(records, options, num_texts, names, SAMPLE, ExitStack())
    if options.columns is not None:
        raise InputError("--columns is for tables, and a list of texts has no columns; leave it out")
    expected = num_texts or next((len(_parts(item)) for item in items if not is_missing(item)), 1)
    text_columns = list(names) if len(names) == expected else ["text", "second"][:expected]

    def rows() -> Iterator[Row]:
        for number, item in enumerate(items):
            where = f"text {number + 1}"
            parts = (None,) * expected if is_missing(item) else _parts(item)
            if len(parts) != expected:
                wanted = " and ".join(text_columns)
                raise InputError(
                    f"{where}: expected {'a pair of texts' if expected == 2 else 'one text'} ({wanted}), got "
                    f"{'one text' if len(parts) == 1 else f'{len(parts)} items'}: {str(item)[:60]!r}"
                )
            texts = tuple(_text(part, name, where) for part, name in zip(parts, text_columns, strict=True))
            yield Row(number, number + 1, texts, dict(zip(text_columns, parts, strict=True)))

    description = "list of pairs" if expected == 2 else "list of texts"
    return RowReader(
        rows(), name="the list", columns=text_columns, text_columns=text_columns, description=description, unit="text"
    )


def _record(item: object, number: int) -> Record:
    if is_missing(item):
        return {}
    if not isinstance(item, Mapping):
        raise InputError(f"the list item {number}: expected a dict as the others, got {kind_of(item)}")
    return dict(item)


def _parts(item: object) -> tuple[object, ...]:
    return tuple(item) if isinstance(item, list | tuple) else (item,)
