"""What Python callers pass as texts or labels, to verbs, estimators and indexes: lists, Series, arrays, generators.

`read_items` is the one place that knows these kinds; `read_texts` makes texts or pairs of them. Of a DataFrame one
column is used, two are pairs where pairs are expected, and anything else is an error that names the remedy.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from regard.data.labels import is_missing
from regard.errors import InputError


@dataclass(frozen=True)
class TextInputs:
    """Texts, or pairs of texts; None where a text is missing.

    `num_columns` and `column_names` are those of a two-dimensional X, None of others. `index` is the index of a Series
    or a DataFrame of pandas.
    """

    texts: list[str | tuple[str, str] | None]
    num_columns: int | None = None
    column_names: tuple[str, ...] | None = None
    index: Any = None

    def present(self) -> list[str | tuple[str, str]]:
        """The texts. Raises InputError that names the first row without one."""
        for row, text in enumerate(self.texts):
            if text is None:
                raise InputError(
                    f"the text of row {row} is missing (None, NaN or an empty cell); fill it or drop the row, such as "
                    "with frame.dropna()"
                )
        return [text for text in self.texts if text is not None]


@dataclass(frozen=True, eq=False)
class DataFrameSource:
    """A DataFrame of pandas or polars; in lines that reproduce a result, a file or a variable stands for it."""

    frame: Any

    def __str__(self) -> str:
        return "FILE"

    def __repr__(self) -> str:
        return "frame"


def read_items(X: Any, expected: str = "a list of texts") -> list[Any]:
    """Return the items of a list, tuple, generator, Series, array or column. Raises InputError for anything else."""
    if isinstance(X, str | bytes):
        raise InputError(f"expected {expected}, got one {type(X).__name__}; put it in a list: [{X[:30]!r}]")
    if isinstance(X, Mapping | Set) or not isinstance(X, Iterable):
        hint = "give the texts of one key" if isinstance(X, Mapping) else "put the texts in a list"
        if isinstance(X, os.PathLike):
            hint = "give the texts of the file, such as path.read_text()"
        raise InputError(f"expected {expected}, got one {type(X).__name__}; {hint}")
    columns, _ = columns_of(X)
    if columns is not None and len(columns) == 1:
        return list(columns[0])
    listed = getattr(X, "tolist", None) or getattr(X, "to_pylist", None)  # to_pylist: columns of Arrow tables
    return list(listed() if callable(listed) else X)


def read_texts(X: Any, *, pairs: bool = False, estimator: str | None = None) -> TextInputs:
    """Read texts: a list, tuple or generator, a Series, an array or a DataFrame. A missing one (None, NaN) is None.

    `pairs`: whether an item may be two texts. Raises InputError for anything else, naming the row or the remedy;
    `estimator` is the one whose X it is.
    """
    columns, names = columns_of(X)
    index = getattr(X, "index", None)
    if columns is None:
        texts = [_item(item, row, pairs) for row, item in enumerate(read_items(X))]
        return TextInputs(texts, index=_index(index))
    if len(columns) == 1 or (pairs and len(columns) == 2):
        rows = list(zip(*columns, strict=True))
        texts = [_item(row[0] if len(row) == 1 else row, number, pairs) for number, row in enumerate(rows)]
        return TextInputs(texts, len(columns), names, _index(index))
    example = names[0] if names else "column"
    listed = f" ({', '.join(names[:5])}{', ...' if len(names) > 5 else ''})" if names else ""
    choice = f'frame["{example}"]' if names else "X[:, 0]"
    expected = "one column of texts or two of pairs" if pairs else "one column of texts"
    one_by_one = f', or embed columns one by one: ColumnTransformer([("{example}", {estimator}(), "{example}")])'
    raise InputError(
        f"expected {expected}, got {len(columns)} columns{listed}; choose the texts with {choice}"
        f"{one_by_one if estimator else ''}"
    )


def read_rows(X: Any) -> list[Any]:
    """Read texts, pairs of texts, or records: None where one is missing, and the others as they are."""
    return [
        item if isinstance(item, list | tuple | Mapping) else _item(item, row, True)
        for row, item in enumerate(read_items(X))
    ]


def remember_columns(estimator: Any, inputs: TextInputs) -> None:
    """Store the number and the names of the columns of X under the names that scikit-learn uses."""
    import numpy as np  # here: the command line reads the verbs' requests without numpy

    if inputs.num_columns is not None:
        estimator.n_features_in_ = inputs.num_columns
    if inputs.column_names is not None:
        estimator.feature_names_in_ = np.array(inputs.column_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def check_columns(estimator: Any, inputs: TextInputs) -> None:
    """Raise InputError for a DataFrame with other column names than the one that the estimator was fitted on."""
    known = getattr(estimator, "feature_names_in_", None)
    if known is not None and inputs.column_names is not None and tuple(known) != inputs.column_names:
        raise InputError(
            f"the column names should match those passed to fit, {', '.join(known)}; got "
            f"{', '.join(inputs.column_names)}"
        )


def read_column(y: Any, what: str = "a list of labels") -> list[Any]:
    """Read the y of an estimator: a list, a Series, an array, or one column of a DataFrame."""
    columns, names = columns_of(y)
    if columns is None:
        return read_items(y, what)
    if len(columns) != 1:
        chosen = names[-1] if names else "label"
        raise InputError(f'expected {what} in one column, got {len(columns)}; choose it, such as frame["{chosen}"]')
    return list(columns[0])


def columns_of(X: Any) -> tuple[list[Sequence[Any]] | None, tuple[str, ...] | None]:
    """The columns of a DataFrame or a two-dimensional array, and their names; None for one-dimensional data."""
    if hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
        if hasattr(X, "iloc"):
            return [X.iloc[:, index].tolist() for index in range(len(names))], tuple(names)
        return [list(X[name]) for name in X.columns], tuple(names)
    shape = getattr(X, "shape", None)
    if not isinstance(shape, tuple) or len(shape) == 1:
        return None, None
    if len(shape) != 2:
        raise InputError(f"expected one text per row, got an array of shape {tuple(shape)}")
    return [X[:, index].tolist() for index in range(shape[1])], None


def _item(item: Any, row: int, pairs: bool) -> str | tuple[str, str] | None:
    # An empty string is a text; in a table an empty cell is not, but here the caller has decided.
    if isinstance(item, str):
        return str(item)
    if is_missing(item):
        return None
    if isinstance(item, list | tuple) and len(item) == 2:
        if pairs and all(isinstance(part, str) for part in item):
            return str(item[0]), str(item[1])
        if pairs and any(is_missing(part) for part in item):
            return None
    expected = "texts or pairs of them" if pairs else "texts"
    kind = f"{len(item)} items" if isinstance(item, list | tuple) else type(item).__name__
    raise InputError(f"expected {expected}, got {kind} in row {row}: {str(item)[:40]!r}")


def _index(index: Any) -> Any:
    return None if callable(index) else index  # list.index is a method
