"""What the cells of a column look like, and what that says of it: a header above it, a text, a label, a number.

Knows no name and no file. Every answer comes from a sample of rows and may be "cannot tell".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from regard.data.readers.names import is_known

__all__ = ["Column", "columns_of", "has_header", "label_by_shape", "texts_by_shape"]

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_NAME = re.compile(r"(?=.{1,40}$)[^\W\d]\w*(?:[ -]\w+){0,2}")
_FEW = 20  # below this many rows, how often a value comes back says little


@dataclass(frozen=True)
class Column:
    """One column of the sample; `length` and `words` are means."""

    index: int
    rows: int
    length: float
    words: float
    distinct: int
    blank: bool
    numbers: bool
    fraction: bool
    counts: bool  # integers that grow from row to row, as the number of a row does

    @property
    def like_labels(self) -> bool:
        return self.rows >= _FEW and self.distinct <= self.rows / 10


def columns_of(rows: Sequence[Sequence[object]]) -> list[Column]:
    """The columns that most rows of the sample have; rows with fewer are not looked at."""
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
    """Whether the first row names the columns: a known name, or names over columns that hold something else."""
    first = [str(cell).strip() for cell in rows[0]]
    below = [[str(row[index]).strip() for row in rows[1:] if index < len(row)] for index in range(len(first))]
    if any(_NUMBER.fullmatch(cell) for cell in first):
        return False
    if any(is_known(cell) and cell not in column for cell, column in zip(first, below, strict=True)):
        return True
    names = [cell for cell in first if cell]  # a column may be left without one
    if len(rows) < 3 or len(set(names)) < len(names) or not all(map(_NAME.fullmatch, names)):
        return False
    return any(cell and _differs(cell, column) for cell, column in zip(first, below, strict=True))


def _differs(cell: str, column: list[str]) -> bool:
    """Whether the cells below are all numbers, or come back so often that this one would too."""
    if not column or cell in column:
        return False
    few = len(column) >= _FEW and len(set(column)) <= len(column) / 10
    return few or all(_NUMBER.fullmatch(other) for other in column)


def texts_by_shape(columns: Sequence[Column], *, task: str) -> tuple[int, ...] | None:
    """The longest column, or the two longest for a pair; None where that does not decide."""
    found = sorted((column for column in columns if not column.numbers), key=lambda column: -column.length)
    wanted = 2 if task == "pair" else 1
    kept = [column for column in found if not column.like_labels]
    found = kept if len(kept) >= wanted else found
    if len(found) < wanted:
        return None
    best, second = found[0], found[1] if len(found) > 1 else None
    if task == "pair" and second is not None:
        return min(best.index, second.index), max(best.index, second.index)
    if second is not None and second.words >= 3 and second.distinct > second.rows / 2:
        if task == "regress" and second.length >= best.length / 4:
            return min(best.index, second.index), max(best.index, second.index)
        if task == "classify" and second.length > best.length / 2:
            return None
    return (best.index,)


def label_by_shape(columns: Sequence[Column], *, numbers: bool, needed: bool) -> list[int]:
    """The columns that may be the label: none, the one, or several between which nothing decides.

    A label has no blanks and comes back in other rows, with as few values as any other such column. With `numbers`, it
    is the column of numbers with a fraction. What never comes back in many rows is no label, and what counts the rows
    is one only where one is needed and nothing else is left.
    """
    found = [column for column in columns if not column.blank and (column.numbers or not numbers)]
    if numbers and any(column.fraction for column in found):
        return [column.index for column in found if column.fraction]
    likely = (
        [column for column in found if 1 < column.distinct < column.rows]
        or [column for column in found if column.distinct == 1 < column.rows]
        or [column for column in found if column.rows <= (2 if column.counts else _FEW)]
    )
    found = likely or [column for column in found if needed and len(columns) == 1 and column.rows <= _FEW]
    fewest = min((column.distinct for column in found), default=0)
    tied = [column for column in found if column.distinct == fewest]
    # CoLA's first rows come from two books and have two labels: a number is rather a label than a name is.
    coded = [column for column in tied if column.numbers and not column.counts]
    return [column.index for column in (coded if len(coded) == 1 else tied)]
