"""Predictions as a table: the number and line of each row, the columns that were kept, and those of the task."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import InputError
from regard.tasks.prediction.inputs import InputRow
from regard.tasks.task import ColumnKind, Prediction, Task


@dataclass(frozen=True)
class PredictionTable:
    """The columns: `row` (from 0), `line` if the input has lines, the `kept` ones, and those of the task.

    A column whose name the input has already gets a prefix: `predicted_label`, `input_row`.
    """

    task: Task[Any]
    kept: tuple[str, ...] = ()
    lines: bool = False

    @property
    def position_names(self) -> tuple[str, ...]:
        names = ("row", "line") if self.lines else ("row",)
        return tuple(free_name(name, self.kept, "input") for name in names)

    @property
    def predicted(self) -> dict[str, ColumnKind]:
        """The columns of the task."""
        taken = {*self.kept, *self.position_names}
        columns = self.task.prediction_columns.items()
        return {free_name(name, taken, "predicted"): kind for name, kind in columns}

    @property
    def names(self) -> list[str]:
        return [*self.position_names, *self.kept, *self.predicted]

    def cells(self, row: InputRow, prediction: Prediction | None) -> list[Any]:
        """The row of the table; without a prediction its cells are empty."""
        columns = self.task.prediction_columns
        found = dict.fromkeys(columns) if prediction is None else self.task.to_columns(prediction)
        position = [row.number, row.line] if self.lines else [row.number]
        return [*position, *(row.kept[name] for name in self.kept), *(found[name] for name in columns)]


def free_name(name: str, taken: Collection[str], prefix: str) -> str:
    """The name, with as many prefixes as it needs to differ from those that are taken."""
    while name in taken:
        name = f"{prefix}_{name}"
    return name


def add_columns(frame: Any, task: Task[Any], predictions: Sequence[Prediction | None]) -> Any:
    """The DataFrame of pandas or polars with the columns of the task added, in the same order, with the same index."""
    if len(frame) != len(predictions):
        raise InputError(f"the DataFrame has {len(frame):,} rows and there are {len(predictions):,} predictions")
    taken = {str(name) for name in frame.columns}
    names = {name: free_name(name, taken, "predicted") for name in task.prediction_columns}
    blank = dict.fromkeys(names)
    rows = [blank if prediction is None else task.to_columns(prediction) for prediction in predictions]
    columns = {names[name]: [row[name] for row in rows] for name in names}
    if hasattr(frame, "with_columns"):
        import polars  # type: ignore[import-not-found,unused-ignore]

        return frame.with_columns([polars.Series(name, values) for name, values in columns.items()])
    import pandas  # type: ignore[import-untyped,unused-ignore]

    added = pandas.DataFrame(columns, index=frame.index, columns=list(columns))
    return pandas.concat([frame, added], axis="columns")
