"""`PredictResult`: one prediction per row of the input, as JSON lines, a table or the page's view "tasks"."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

from pydantic import PrivateAttr

from regard.data.examples import Example, ImageExample, example_values
from regard.errors import InputError
from regard.escaping import escape_json
from regard.models.family import family_name
from regard.render.page_arrays import data_uri
from regard.render.result import Result, Table, round_floats
from regard.tasks.prediction.inputs import InputRow
from regard.tasks.task import ColumnKind, Prediction, Task
from regard.wording import count_of, were

PAGE_EXAMPLES = 50  # examples that a page shows


class PredictResult(Result):
    """One prediction per row of the input, in order: `row` counts from 0, `line` is that of a file, `kept` the columns
    that were kept. `blank` rows have no text, and no answer; `skipped` ones are not among the `rows`; `truncated`
    texts were cut to the model's length.

    With an output file the predictions are in there: `resumed` ones by an earlier run.
    """

    page_view: ClassVar[str | None] = "tasks"
    view_type: ClassVar[str | None] = "regard.interpret.attribution.predictions:PredictionsView"

    model: str
    task: str
    rows: int
    blank: int = 0
    skipped: int = 0
    truncated: int = 0
    output: Path | str | None = None
    resumed: int = 0
    seconds: float | None = None
    predictions: list[Prediction]
    _already_done: bool = PrivateAttr(False)  # an earlier run had written the output
    _skipped_note: str | None = PrivateAttr(None)
    _fine_tuned: Any = PrivateAttr(None)
    _first: list[tuple[Example, Prediction]] = PrivateAttr(default_factory=list)  # what the page shows
    _evidence: list[tuple[list[Any], str]] = PrivateAttr(default_factory=list)  # for these, or why there is none
    _table: PredictionTable | None = PrivateAttr(None)
    _frame: Any = PrivateAttr(None)  # the input, if it was a DataFrame

    def to_dict(self) -> dict[str, Any]:
        document = super().to_dict()
        left_out = ("output", "resumed", "seconds") if self.output is None else ("predictions",)
        return {name: value for name, value in document.items() if name not in left_out}

    def to_python(self) -> Any:
        """The DataFrame with the columns of the predictions, if the input was one."""
        if self._frame is None:
            return self
        key = self._fine_tuned.task.answer_keys[0]
        answers = [None if prediction[key] is None else prediction for prediction in self.predictions]
        return add_columns(self._frame, self._fine_tuned.task, answers)

    def to_text(self) -> str:
        if self.output is not None:
            return f"{self.output}: {count_of(self.rows, 'row')}"
        return "\n".join(map(json_line, self.predictions))

    def to_table(self) -> Table:
        """The columns of an output file: `row`, `line`, those that were kept, and those of the task."""
        assert self._table is not None
        key = self._fine_tuned.task.answer_keys[0]
        rows = []
        for prediction in self.predictions:
            row = InputRow(prediction["row"], prediction.get("line"), None, prediction.get("kept", {}))
            rows.append(self._table.cells(row, None if prediction[key] is None else prediction))
        return self._table.names, rows

    def notes(self) -> list[str]:
        """What happened to rows that are blank, skipped or too long."""
        notes = []
        if self._already_done:
            notes.append(
                f"{self.output} is finished and intact: nothing was predicted; --restart predicts all rows again"
            )
        if self.blank:
            notes.append(f"{count_of(self.blank, 'row')} without a text: no answer there")
        if self._skipped_note is not None:
            notes.append(self._skipped_note)
        if self.truncated:
            length = self._fine_tuned.length
            notes.append(
                f"{count_of(self.truncated, 'text')} had more than {length} tokens and {were(self.truncated)} cut"
            )
        return notes

    @property
    def first(self) -> list[tuple[Example, Prediction]]:
        """The first examples that have an answer, with their predictions: those that the page shows."""
        return self._first

    def view_data(self) -> dict[str, object]:
        task = self._fine_tuned.task
        count, rows = len(self.first), self.rows - self.blank
        return {
            "model": {
                "name": self.model,
                "family": family_name(self._fine_tuned.model.encoder),
                "task": task.name,
                "labels": list(task.labels),
                "several": task.problem_type == "multi_label_classification",
            },
            "predictions": [
                _page_example(example, prediction, *(evidence or ([], "")))
                for (example, prediction), evidence in zip_longest(self.first, self._evidence)
            ],
            "notes": [f"The first {count:,} of {rows:,} examples are shown."] if count < rows else [],
        }


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


def printed_row(row: InputRow, prediction: Prediction | None, task: Task[Any]) -> Prediction:
    """What is printed for a row: its number and line, what was kept, and the prediction, which may be empty."""
    line = {} if row.line is None else {"line": row.line}
    kept = {"kept": dict(row.kept)} if row.kept else {}
    answer = dict.fromkeys(task.answer_keys) if prediction is None else prediction
    return {"row": row.number, **line, **kept, **answer}


def json_line(prediction: Prediction) -> str:
    return escape_json(json.dumps(prediction, ensure_ascii=False, default=str))


def _page_example(example: Example, prediction: Prediction, evidence: list[Any], why: str) -> dict[str, object]:
    image = data_uri(example.pixels) if isinstance(example, ImageExample) else None
    texts = [text for name, text in example_values(example).items() if name not in ("id", "endings")]
    texts += getattr(example, "endings", ())
    return {
        "texts": texts,
        "image": image,
        "prediction": prediction,
        "evidence": round_floats(evidence),
        "why": why,
    }
