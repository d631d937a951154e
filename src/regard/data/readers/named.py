"""Columns that a user names: where they are in a table, and what a record has there.

Knows tables, objects and `--columns`. Knows nothing of what the keys mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regard.data.readers.records import Record
from regard.data.readers.tables import Table
from regard.errors import InputError, suggest
from regard.wording import is_count

__all__ = ["column_at", "place_of", "rows_of"]


def column_at(record: Record, column: str, where: str) -> object:
    """What a record has under the name of a column; InputError with the names that there are."""
    if column not in record:
        raise InputError(f"{where}: no {column!r}, which --columns names; {suggest(column, record)}")
    return record[column]


def rows_of(table: Table, columns: Sequence[str], *, header: bool | None) -> Iterator[tuple[int, Record]]:
    """The rows of a table with the columns that a user names, by name or by number from 0, under those names.

    Unless it is said, there is a header where a column is named and not numbered.
    """
    named = any(not column.isdecimal() for column in columns) if header is None else header
    names = [str(cell).strip() for cell in table.rows[0]] if named else None
    places = [place_of(table, names, column) for column in columns]
    if len(set(places)) < len(places):
        raise InputError(f"--columns should name each column once, got {', '.join(columns)}")
    for row in range(int(named), len(table.rows)):
        cells = table.rows[row]
        if len(cells) <= max(places):
            raise InputError(
                f"{table.place(row)}: expected column {max(places)}, and this row has {len(cells)} columns "
                f"({table.description}); mend the row or choose other --columns"
            )
        rest = {} if names is None else dict(zip(names, cells, strict=False))
        yield table.lines[row], rest | {column: cells[place] for column, place in zip(columns, places, strict=True)}


def place_of(table: Table, names: Sequence[str] | None, column: str) -> int:
    """The place of a column that a user names, or an InputError with the names that there are."""
    if names is not None and column in names:
        return names.index(column)
    width = len(names) if names is not None else len(table.rows[0])
    if is_count(column) and int(column) < width:
        return int(column)
    if names is None:
        raise InputError(f"{table.name}: no column {column!r}; without a header, give a number from 0 to {width - 1}")
    hint = suggest(column, [name[:40] for name in names])
    raise InputError(f"{table.name}: no column {column!r}; {hint}; or a number from 0 to {width - 1}")
