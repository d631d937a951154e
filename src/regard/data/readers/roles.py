"""Decides which columns of a table are texts and labels, and whether its first row is a header.

That follows from the columns that the caller names, else from known names in the header, else from the shape of the
columns. If these do not decide, the error shows the first row with numbered columns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from regard.data.readers.records import kind_of, refuse_halves
from regard.data.readers.tables import (
    LABELS,
    PAIRS,
    SAMPLE,
    SCORES,
    TEXTS,
    Table,
    column_index,
    fold,
    is_known,
    unique_names,
)
from regard.errors import InputError

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_NAME = re.compile(r"(?=.{1,40}$)[^\W\d]\w*(?:[ -]\w+){0,2}")
_MIN_ROWS = 20  # with fewer rows, repeated values mean little
TextTask = Literal["classify", "pair", "regress", "sequence"]  # "sequence": one or two texts and a label
EITHER = ("regress", "sequence")  # read one text or two


@dataclass(frozen=True)
class Roles:
    """The roles of the columns; `first` is the first row after the header. Several `labels` are columns of 0 and 1."""

    texts: tuple[int, ...]
    labels: tuple[int, ...]
    header: list[str] | None
    first: int
    description: str

    def name(self, index: int) -> str:
        """Return the name of a column, "column 2" if it has none."""
        return self.header[index] if self.header is not None and index < len(self.header) else f"column {index}"

    @property
    def text_names(self) -> tuple[str, ...]:
        return tuple(map(self.name, self.texts))


@dataclass(frozen=True)
class RowWidths:
    """The number of cells that rows should have: more than `last`, and exactly `width` if the file is strict."""

    last: int
    width: int
    exact: bool
    delimiter: str | None
    description: str

    @classmethod
    def of(cls, table: Table, roles: Roles) -> RowWidths:
        width = len(roles.header) if roles.header is not None else len(table.rows[0])
        # Tab-separated files without a header may have rows of different widths, as in STS-B.
        exact = table.delimiter is not None and (table.delimiter != "\t" or roles.header is not None)
        return cls(max(*roles.texts, *roles.labels, 0), width, exact, table.delimiter, roles.description)

    def check(self, cells: Sequence[object], where: str) -> None:
        """Raise InputError for a row with too few or too many cells."""
        if len(cells) <= self.last:
            raise InputError(
                f"{where}: expected column {self.last}, but this row has {len(cells)} of {self.width} columns "
                f"({self.description}); fix the row or choose other --columns"
            )
        if self.exact and any(cell for cell in cells[self.width :]):
            quotes = "" if self.delimiter == "\t" else ", or quote the field that contains the delimiter"
            raise InputError(
                f"{where}: expected {self.width} columns, but this row has {len(cells)}; fix the row{quotes}"
            )


def text_cell(roles: Roles, cells: Sequence[object], index: int, where: str) -> str:
    """Return the text in a cell. Raises InputError if it is something else."""
    cell, key = cells[index], roles.name(index)
    if not isinstance(cell, str):
        raise InputError(f"{where}: {key} should be a text, got {kind_of(cell)}; {_numbered(cells, roles.header)}")
    refuse_halves(cell, key, where)
    return cell


def decide_texts(
    table: Table, *, num_texts: int | None, names: Sequence[str], columns: Sequence[str] | None, header: bool | None
) -> Roles:
    """Infer which columns hold the texts: those that are named, else those called `names`, else as `decide` does.

    `num_texts`: one text per row, two, or either for None. Raises InputError that explains how to name them.
    """
    header_names, first = header_of(table, columns, header)
    if first == len(table.rows):
        raise InputError(f"{table.name} has a header and no rows: expected at least one")
    folded = [fold(name) for name in header_names or []]
    wanted = [fold(name) for name in names]
    width = len(header_names) if header_names is not None else len(table.rows[0])
    if columns is not None:
        texts = tuple(column_index(table, header_names, column) for column in columns)
        if len(set(texts)) < len(texts) or len(texts) != (num_texts or min(len(texts), 2)):
            count = {1: "one column, that of the text", 2: "two columns, one for each text"}
            raise InputError(
                f"--columns should name {count.get(num_texts or 0, 'one or two columns')}; got {', '.join(columns)}"
            )
    elif wanted and len(wanted) == (num_texts or len(wanted)) and all(name in folded for name in wanted):
        texts = tuple(map(folded.index, wanted))
    elif width == (num_texts or 1):
        texts = tuple(range(width))
    elif width == 1:
        both = f"two, {names[0]} and {names[1]}" if len(names) == 2 else "two"
        raise InputError(
            f"{table.name} has one text per row ({table.description}), expected {both}; give a table with a column "
            "for each"
        )
    else:
        task: TextTask = "classify" if num_texts == 1 else "pair" if num_texts == 2 else "regress"  # which has either
        texts, _ = _inferred(table, header_names, first, task=task, labeled=False)
    return Roles(texts, (), header_names, first, _describe(table, header_names, texts, ()))


def decide(
    table: Table, *, task: TextTask, columns: Sequence[str] | None, header: bool | None, labeled: bool | None
) -> Roles:
    """Infer the roles of the columns. Raises InputError that explains how to name them."""
    names, first = header_of(table, columns, header)
    if first == len(table.rows):
        raise InputError(f"{table.name} has a header and no rows: expected at least one example")
    if columns is not None:
        texts, labels = _named(table, names, columns, task=task, labeled=labeled)
    else:
        texts, labels = _inferred(table, names, first, task=task, labeled=labeled)
    if labeled and not labels:
        raise InputError(
            f"{table.name}: no column of labels found, but they are needed; {numbered(table, names, first)}; "
            "name the columns with --columns, such as --columns 0,1 (text, then label)"
        )
    return Roles(texts, labels, names, first, _describe(table, names, texts, labels))


def numbered(table: Table, names: list[str] | None, first: int) -> str:
    """Describe the numbered columns of a row, for an error."""
    return _numbered(table.rows[min(first, len(table.rows) - 1)], names)


def _numbered(row: Sequence[object], names: Sequence[str] | None) -> str:
    texts = [(text if len(text) <= 30 else text[:29] + "…") for text in ("" if c is None else str(c) for c in row)]
    labels = [f" {names[index]}" if names and index < len(names) else "" for index in range(len(texts))]
    return "its columns are " + ", ".join(
        f"{index}{name} {text!r}" for index, (name, text) in enumerate(zip(labels, texts, strict=True))
    )


def header_of(
    table: Table, columns: Sequence[str] | None, header: bool | None, *, known: Sequence[Sequence[str]] = ()
) -> tuple[list[str] | None, int]:
    """The names of the columns, if the table has any, and the number of rows above the first example.

    A first row that has all names of an item of `known` is a header.
    """
    if table.header is not None:
        return table.header, 0
    if header is None:
        first = {fold(str(cell)) for cell in table.rows[0]} if known else set()
        has_names = columns is not None and any(not column.isdecimal() for column in columns)
        has_names = has_names or any(set(names) <= first for names in known)
        header = has_names or (table.delimiter is not None and has_header(table.rows[: SAMPLE + 1]))
    return (unique_names(table.rows[0]), 1) if header else (None, 0)


def _named(
    table: Table, names: list[str] | None, columns: Sequence[str], *, task: TextTask, labeled: bool | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    indices = [column_index(table, names, column) for column in columns]
    if task in EITHER:
        count = 2 if len(indices) > 2 or (len(indices) == 2 and labeled is False) else 1
    else:
        count = 2 if task == "pair" else 1
    texts, labels = tuple(indices[:count]), tuple(indices[count:])
    expected = {
        "classify": "text, then a label or several columns of 0 and 1",
        "pair": "text, second text, label",
        "regress": "text[, second text], number",
        "sequence": "text[, second text], label",
    }[task]
    if len(texts) < count or (len(labels) > 1 and task != "classify") or len(set(indices)) < len(indices):
        raise InputError(f"--columns for {task} should be {expected}; got {', '.join(columns) or 'none'}")
    if len(labels) > 1 and names is None:
        raise InputError(
            f"{table.name}: several columns of labels need a header with the names of the labels; put one into the "
            "first line"
        )
    return texts, () if labeled is False else labels


def _inferred(
    table: Table, names: list[str] | None, first: int, *, task: TextTask, labeled: bool | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    columns = columns_of(table.rows[first : first + SAMPLE])
    folded = [fold(name) for name in names or []]
    texts = _texts_by_name(table, folded, task) if names else None
    label = next((folded.index(name) for name in (SCORES if task == "regress" else LABELS) if name in folded), None)
    named = texts is not None
    if texts is None:
        rest = [column for column in columns if column.index != label]
        texts = texts_by_shape(rest, task=task)
    if texts is None:
        needed = "two texts" if task == "pair" else "the text"
        example = "0,1,2 (text, second text, label)" if task == "pair" else "0,1 (text, label)"
        raise InputError(
            f"{table.name}: cannot tell which columns hold {needed}; {numbered(table, names, first)}; name them with "
            f"--columns, such as --columns {example}"
        )
    if labeled is False:
        return texts, ()
    if label is not None:
        return texts, (label,)
    rest = [column for column in columns if column.index not in texts]
    # A header that names the texts would also name the label, so infer one among several columns only if it is needed.
    if named and not labeled and len(rest) != 1:
        return texts, ()
    candidates = label_by_shape(rest, numbers=task == "regress", needed=bool(labeled))
    if len(candidates) > 1:
        listed = ", ".join(str(index) for index in candidates)
        raise InputError(
            f"{table.name}: the label may be any of the columns {listed}; {numbered(table, names, first)}; "
            "name the columns with --columns, such as --columns 0,1 (text, then label)"
        )
    return texts, tuple(candidates)


def _texts_by_name(table: Table, folded: list[str], task: TextTask) -> tuple[int, ...] | None:
    pair = next((names for names in PAIRS if names[0] in folded and names[1] in folded), None)
    single = next((name for name in TEXTS if name in folded), None)
    if pair and task == "classify":
        raise InputError(
            f"{table.name} has two texts, {pair[0]} and {pair[1]}, and one is expected: name it with --columns, such "
            f"as --columns {pair[0]} (then the label, if one is needed), or use a model or task for pairs"
        )
    if pair:
        return folded.index(pair[0]), folded.index(pair[1])
    return (folded.index(single),) if single and task != "pair" else None


def _describe(table: Table, names: list[str] | None, texts: tuple[int, ...], labels: tuple[int, ...]) -> str:
    def column_name(index: int) -> str:
        return names[index] if names and index < len(names) else f"column {index}"

    if table.delimiter is None and table.header is None:
        return table.description
    parts = [table.description]
    if table.header is None:
        parts.append("header" if names else "no header")
    parts += [f"{role} = {column_name(index)}" for role, index in zip(("text", "second"), texts, strict=False)]
    if labels:
        parts.append(f"{'label' if len(labels) == 1 else 'labels'} = {', '.join(map(column_name, labels))}")
    return ", ".join([*parts, *renamed_columns(table, names)])


def renamed_columns(table: Table, names: Sequence[str] | None) -> list[str]:
    """Say which columns of a header have another name than written, because an earlier column has it."""
    written = [str(cell).strip() for cell in table.rows[0]] if names and table.header is None else []
    return [
        f"the {'second' if written[:index].count(old) == 1 else 'next'} column {old!r} is read as {new!r}"
        for index, (old, new) in enumerate(zip(written, names or (), strict=False))
        if old and old != new
    ]


@dataclass(frozen=True)
class Column:
    """Statistics of one column of the sample; `length` and `words` are means."""

    index: int
    rows: int
    length: float
    words: float
    distinct: int
    blank: bool
    numbers: bool
    fraction: bool
    counts: bool  # increasing integers, such as row numbers

    @property
    def like_labels(self) -> bool:
        return self.rows >= _MIN_ROWS and self.distinct <= self.rows / 10


def columns_of(rows: Sequence[Sequence[object]]) -> list[Column]:
    """Return the columns that most rows of the sample have; shorter rows are ignored."""
    widths = Counter(map(len, rows))
    width = max(widths, key=lambda width: (widths[width], width))
    full = [row for row in rows if len(row) >= width]
    cells = [[("" if row[index] is None else str(row[index])).strip() for row in full] for index in range(width)]
    return [_column(index, column) for index, column in enumerate(cells)]


def _column(index: int, cells: list[str]) -> Column:
    numbers = all(_NUMBER.fullmatch(cell) for cell in cells)
    whole = numbers and all(len(cell) < 20 and cell.lstrip("+-").isdecimal() for cell in cells)
    return Column(
        index=index,
        rows=len(cells),
        length=sum(map(len, cells)) / len(cells),
        words=sum(len(cell.split()) for cell in cells) / len(cells),
        distinct=len(set(cells)),
        blank=not all(cells),
        numbers=numbers,
        fraction=numbers and any("." in cell for cell in cells),
        counts=whole and all(int(a) < int(b) for a, b in pairwise(cells)),
    )


def has_header(rows: Sequence[Sequence[object]]) -> bool:
    """Return whether the first row is a header: it has a known name, or names above columns of another kind."""
    first = [str(cell).strip() for cell in rows[0]]
    below = [[str(row[index]).strip() for row in rows[1:] if index < len(row)] for index in range(len(first))]
    if any(_NUMBER.fullmatch(cell) for cell in first):
        return False
    if any(is_known(cell) and cell not in column for cell, column in zip(first, below, strict=True)):
        return True
    names = [cell for cell in first if cell]  # columns may be unnamed
    if len(rows) < 3 or len(set(names)) < len(names) or not all(map(_NAME.fullmatch, names)):
        return False
    return any(cell and _differs(cell, column) for cell, column in zip(first, below, strict=True))


def _differs(cell: str, column: list[str]) -> bool:
    """Return whether the cells below are all numbers, or repeat so often that `cell` would be among them."""
    if not column or cell in column:
        return False
    repeats = len(column) >= _MIN_ROWS and len(set(column)) <= len(column) / 10
    return repeats or all(_NUMBER.fullmatch(other) for other in column)


def texts_by_shape(columns: Sequence[Column], *, task: str) -> tuple[int, ...] | None:
    """Return the longest column, or the two longest for a pair; None if that is ambiguous."""
    candidates = sorted((column for column in columns if not column.numbers), key=lambda column: -column.length)
    needed = 2 if task == "pair" else 1
    texts = [column for column in candidates if not column.like_labels]
    candidates = texts if len(texts) >= needed else candidates
    if len(candidates) < needed:
        return None
    best, second = candidates[0], candidates[1] if len(candidates) > 1 else None
    if task == "pair" and second is not None:
        return min(best.index, second.index), max(best.index, second.index)
    if second is not None and second.words >= 3 and second.distinct > second.rows / 2:
        if task in EITHER and second.length >= best.length / 4:
            return min(best.index, second.index), max(best.index, second.index)
        if task == "classify" and second.length > best.length / 2:
            return None
    return (best.index,)


def label_by_shape(columns: Sequence[Column], *, numbers: bool, needed: bool) -> list[int]:
    """Return the columns that may be the label: none, one, or several if that is ambiguous.

    A label column has no empty cells and repeats its values; the column with the fewest distinct values wins. With
    `numbers`, it is the column of decimal numbers. With many rows, a column that never repeats a value is not a label.
    A column of row numbers is one only if a label is needed and there is no other column.
    """
    candidates = [column for column in columns if not column.blank and (column.numbers or not numbers)]
    if numbers and any(column.fraction for column in candidates):
        return [column.index for column in candidates if column.fraction]
    likely = (
        [column for column in candidates if 1 < column.distinct < column.rows]
        or [column for column in candidates if column.distinct == 1 < column.rows]
        or [column for column in candidates if column.rows <= (2 if column.counts else _MIN_ROWS)]
    )
    candidates = likely or [
        column for column in candidates if needed and len(columns) == 1 and column.rows <= _MIN_ROWS
    ]
    fewest = min((column.distinct for column in candidates), default=0)
    tied = [column for column in candidates if column.distinct == fewest]
    # CoLA's first rows have two sources and two labels: the numeric column is the label.
    numeric = [column for column in tied if column.numbers and not column.counts]
    return [column.index for column in (numeric if len(numeric) == 1 else tied)]
