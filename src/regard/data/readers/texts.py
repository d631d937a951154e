"""Reads texts and text pairs with labels or scores from TSV, CSV, JSON lines, Parquet or plain lines.

Which columns are texts and labels, and whether the first row is a header, follows from the columns that the caller
names, else from known names in the header, else from the shape of the columns. If these do not decide, the error shows
the first row with numbered columns.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from regard.data.examples import TextExample
from regard.data.labels import is_missing, is_missing_label
from regard.data.readers.records import ExampleSet, Path, kind_of, refuse_halves
from regard.data.readers.tables import (
    LABELS,
    PAIRS,
    SAMPLE,
    SCORES,
    TEXTS,
    Missing,
    Table,
    column_index,
    fold,
    is_known,
    open_table,
)
from regard.errors import InputError, check_choice
from regard.wording import count_of

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_NAME = re.compile(r"(?=.{1,40}$)[^\W\d]\w*(?:[ -]\w+){0,2}")
_MIN_ROWS = 20  # with fewer rows, repeated values mean little
BLANK = "is blank"
DISPUTED = "gold_label is -: the annotators did not agree"
SKIP_HINT = "fix it, or leave out such rows with --missing skip"
_NO_AGREEMENT = "-"  # MNLI's and SNLI's gold_label where the annotators did not agree
_FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True, "False": False, "True": True}
TextTask = Literal["classify", "pair", "regress"]


def read_text_examples(
    path: Path,
    *,
    task: TextTask,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    quoting: bool | None = None,
    encoding: str | None = None,
    missing: Missing | None = None,
    labeled: bool | None = None,
) -> ExampleSet[TextExample]:
    """Read the examples of a file; `columns` are names or numbers from 0: text, second text for a pair, label.

    `labeled`: True raises an error if there are no labels, False ignores labels, None reads them if there are any.
    Labels are strings, numbers for regress, and tuples if a JSON line has a list or `columns` names several columns of
    0 and 1.

    `missing`: a row without a text, or without a label where labels are required, is an error by default; "skip" leaves
    such rows out and counts them. Blank lines at the end of the file are no rows.
    """
    check_choice("task", task, ("classify", "pair", "regress"))
    check_choice("way with missing texts and labels", missing or "error", ("error", "skip", "keep"))
    table = open_table(path, delimiter=delimiter, quoting=quoting, encoding=encoding)
    roles = decide(table, task=task, columns=columns, header=header, labeled=labeled)
    reader = _Rows(table, roles, numbers=task == "regress", needed=bool(labeled))
    examples, lines = [], []
    dropped: Counter[str] = Counter({BLANK: len(table.blank)} if table.blank else {})
    if table.blank and missing != "skip":
        raise InputError(f"{table.name} {table.unit} {table.blank[0]} {BLANK}; {SKIP_HINT}")
    for row in range(roles.first, len(table.rows)):
        if reader.is_disputed(row):
            dropped[DISPUTED] += 1
        elif (reason := reader.missing(row)) is None:
            examples.append(reader.example(row))
            lines.append(table.lines[row])
        elif missing == "skip":
            dropped[reason] += 1
        else:
            raise InputError(f"{table.location(row)} {reason}; {SKIP_HINT}")
    if not examples:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
        raise InputError(f"{table.name} has no examples: {reasons}; expected at least one row with a text and a label")
    text_columns = roles.text_names if roles.header else ("text", "second")[: len(roles.texts)]
    return ExampleSet(
        examples, table.name, roles.description, dict(dropped), lines, table.unit, text_columns, reader.notes()
    )


class _Rows:
    """Converts rows to examples."""

    def __init__(self, table: Table, roles: Roles, *, numbers: bool, needed: bool) -> None:
        self.table, self.roles, self.numbers, self.needed = table, roles, numbers, needed
        self.widths = RowWidths.of(table, roles)
        self.padded: Counter[str] = Counter()  # labels with spaces around them
        self.gold = next((index for index in roles.labels if fold(self._name(index)) == "gold_label"), None)

    def notes(self) -> tuple[str, ...]:
        if not self.padded:
            return ()
        label = next(iter(self.padded))
        return (f"{count_of(self.padded.total(), 'label')} without the spaces around them, such as {label!r}",)

    def missing(self, row: int) -> str | None:
        """Return what a row lacks, if anything: a text, or a label if one is needed."""
        cells = self.table.rows[row]
        self.widths.check(cells, self.table.location(row))
        for index in self.roles.texts:
            if is_missing(cells[index]):
                return f"has no text ({self._name(index)})"
        if self.needed and len(self.roles.labels) == 1 and is_missing_label(cells[self.roles.labels[0]]):
            return f"has no label ({self._name(self.roles.labels[0])})"
        return None

    def is_disputed(self, row: int) -> bool:
        cells = self.table.rows[row]
        return self.gold is not None and self.gold < len(cells) and cells[self.gold] == _NO_AGREEMENT

    def example(self, row: int) -> TextExample:
        texts = [self._text(row, index) for index in self.roles.texts]
        return TextExample(texts[0], texts[1] if len(texts) > 1 else None, self._label(row))

    def _text(self, row: int, index: int) -> str:
        return text_cell(self.table, self.roles, self.table.rows[row], index, self.table.location(row))

    def _label(self, row: int) -> str | tuple[str, ...] | float | None:
        labels, cells = self.roles.labels, self.table.rows[row]
        if not labels:
            return None
        if len(labels) > 1:
            return tuple(self._name(index) for index in labels if self._flag(row, index))
        cell = cells[labels[0]]
        if isinstance(cell, list) and not self.numbers:
            return tuple(str(item) for item in cell)
        if is_missing_label(cell):
            return None
        text = str(cell).strip()
        if text != str(cell) and not self.numbers:
            self.padded[str(cell)] += 1
        if isinstance(cell, list | dict):
            where, name = self.table.location(row), self._name(labels[0])
            raise InputError(f"{where}: {name} should be a label, got {kind_of(cell)}; give every row a label")
        return self._number(row, text) if self.numbers else text

    def _number(self, row: int, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            where, name = self.table.location(row), self._name(self.roles.labels[0])
            raise InputError(f"{where}: {name} should be a number, got {text!r}; fix the row or choose other --columns")
        return number

    def _flag(self, row: int, index: int) -> bool:
        cell = self.table.rows[row][index]
        text = str(cell).strip()
        if text not in _FLAGS:
            where = self.table.location(row)
            raise InputError(f"{where}: {self._name(index)} should be 0 or 1, got {text!r}; fix the row or --columns")
        return _FLAGS[text]

    def _name(self, index: int) -> str:
        return self.roles.name(index)


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


def text_cell(table: Table, roles: Roles, cells: Sequence[object], index: int, where: str) -> str:
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
    return ([str(cell).strip() for cell in table.rows[0]], 1) if header else (None, 0)


def has_header_row(table: Table, columns: Sequence[str] | None, header: bool | None) -> bool:
    """Return whether the first row of a table names its columns."""
    return header_of(table, columns, header)[1] == 1


def _named(
    table: Table, names: list[str] | None, columns: Sequence[str], *, task: TextTask, labeled: bool | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    indices = [column_index(table, names, column) for column in columns]
    if task == "regress":
        count = 2 if len(indices) > 2 or (len(indices) == 2 and labeled is False) else 1
    else:
        count = 2 if task == "pair" else 1
    texts, labels = tuple(indices[:count]), tuple(indices[count:])
    several = "text, then a label or several columns of 0 and 1"
    expected = {"classify": several, "pair": "text, second text, label", "regress": "text[, second text], number"}[task]
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
    if label is None:
        label = _label(table, names, first, [c for c in columns if c.index not in texts], task, labeled, named)
    return texts, () if label is None else (label,)


def _label(
    table: Table,
    names: list[str] | None,
    first: int,
    rest: list[Column],
    task: TextTask,
    labeled: bool | None,
    named: bool,
) -> int | None:
    # A header that names the texts would also name the label, so infer one among several columns only if it is needed.
    if named and not labeled and len(rest) != 1:
        return None
    candidates = label_by_shape(rest, numbers=task == "regress", needed=bool(labeled))
    if len(candidates) > 1:
        listed = ", ".join(str(index) for index in candidates)
        raise InputError(
            f"{table.name}: the label may be any of the columns {listed}; {numbered(table, names, first)}; "
            "name the columns with --columns, such as --columns 0,1 (text, then label)"
        )
    return candidates[0] if candidates else None


def _texts_by_name(table: Table, folded: list[str], task: TextTask) -> tuple[int, ...] | None:
    pair = _pair_by_name(folded)
    single = next((name for name in TEXTS if name in folded), None)
    if pair and task == "classify":
        raise InputError(
            f"{table.name} has two texts, {pair[0]} and {pair[1]}, and one is expected: name it with --columns, such "
            f"as --columns {pair[0]} (then the label, if one is needed), or use a model or task for pairs"
        )
    if pair:
        return folded.index(pair[0]), folded.index(pair[1])
    return (folded.index(single),) if single and task != "pair" else None


def _pair_by_name(folded: Sequence[str]) -> tuple[str, str] | None:
    return next((names for names in PAIRS if names[0] in folded and names[1] in folded), None)


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
    return ", ".join(parts)


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
        if task == "regress" and second.length >= best.length / 4:
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
