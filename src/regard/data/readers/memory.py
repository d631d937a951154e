"""Labeled rows in memory, which readers take in place of a file: a DataFrame, dictionaries, or tuples."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from regard.data.text_inputs import read_items
from regard.errors import InputError


def refuse_repeated(columns: Sequence[str], name: str) -> None:
    """Raise InputError if two columns have one name: a record could hold only one of them."""
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        raise InputError(f"{name} has two columns named {twice!r}; rename one of them")


def frame_records(frame: Any) -> tuple[list[str], Iterator[dict[str, object]]]:
    """The columns of a pandas or polars DataFrame, and its rows."""
    if hasattr(frame, "itertuples"):
        rows = frame.itertuples(index=False, name=None)
    elif hasattr(frame, "iter_rows"):
        rows = frame.iter_rows()
    else:
        raise InputError(f"expected a DataFrame of pandas or polars, a file or a list; got {type(frame).__name__}")
    columns = [str(column) for column in frame.columns]
    if not columns or not len(frame):
        raise InputError("the DataFrame is empty: expected at least one row")
    refuse_repeated(columns, "the DataFrame")
    return columns, (dict(zip(columns, row, strict=True)) for row in rows)


class RecordList(os.PathLike[str]):
    """Rows by the names of their columns. As a path it is its name, which messages show where a file has its path."""

    def __init__(self, records: Sequence[Mapping[str, object]], name: str) -> None:
        self.records, self.name = [dict(record) for record in records], name

    def __fspath__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return "FILE"  # in the command that trains the same

    def __repr__(self) -> str:
        return "data"  # in the Python code that trains the same

    @classmethod
    def from_source(cls, source: Any) -> RecordList:
        """The rows of a pandas or polars DataFrame, of dictionaries, or of tuples: (text, label), (text, second text,
        label), ((text, second text), label), (words, tags)."""
        if hasattr(source, "columns"):
            return cls(list(frame_records(source)[1]), "the DataFrame")
        if isinstance(source, str | Mapping) or not isinstance(source, Iterable):
            raise InputError(
                f"the data is {type(source).__name__}; expected a DataFrame, a path, or a list of dictionaries or "
                "tuples such as (text, label)"
            )
        rows = read_items(source, "a list of examples")
        if not rows:
            raise InputError("the data is an empty list; expected at least one example")
        return cls([_record(row, index) for index, row in enumerate(rows)], "the list")


def _record(row: object, index: int) -> Mapping[str, object]:
    if isinstance(row, Mapping):
        return {str(key): value for key, value in row.items()}
    if isinstance(row, Sequence) and not isinstance(row, str):
        values = list(row)
        if values and isinstance(values[0], tuple):  # ((text, second text), label)
            values = [*values[0], *values[1:]]
        if len(values) == 2:
            names = ("words", "tags") if isinstance(values[0], list) else ("text", "label")
            return dict(zip(names, values, strict=True))
        if len(values) == 3:
            return dict(zip(("text_a", "text_b", "label"), values, strict=True))
    text = repr(row)
    raise InputError(
        f"item {index} of the list is {text if len(text) <= 60 else text[:57] + '...'}; expected a dictionary, or "
        "(text, label), or (text, second text, label)"
    )
