"""The result of `regard evaluate`: a report for the terminal, JSON, a page, and a file of all errors."""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, PrivateAttr

from regard.errors import InputError
from regard.files.output_file import replace_output
from regard.render.result import Result, Table, round_floats
from regard.tasks.evaluation.parts import (
    Calibration,
    ClassScores,
    Confusion,
    ConfusionMatrix,
    GroupScores,
    Interval,
    NoAnswerCurve,
    Residuals,
    SchemeScores,
    ThresholdCurve,
)

ERROR_FORMATS = (".csv", ".jsonl")
PAGE_ERRORS = 1000  # that a page lists
PAGE_ERRORS_PER_CELL = 20  # of each cell of the confusion matrix, before the rest is filled up with the worst
PAGE_CHARACTERS = 600  # of a text on the page


@dataclass(frozen=True)
class ExampleError:
    """A wrong prediction.

    `row` is the number of the row or example from 0, and `line` the line of the file where it starts, from 1, if the
    file has lines.
    `confidence` is the probability of the prediction, and `probability` that of the true label. `kind` and `score`
    depend on the task: what is wrong with an entity; the F1 of an answer; the difference of a number.
    """

    row: int
    line: int | None
    texts: dict[str, str]
    label: str | float | list[str]
    predicted: str | float | list[str]
    confidence: float | None
    probability: float | None
    kind: str
    score: float | None


class EvaluationFields(BaseModel):
    """What the JSON document and the page have in common. What does not apply to a task is empty."""

    task: str
    model: str
    n: int
    metrics: dict[str, float]
    intervals: dict[str, Interval]
    finding: str
    remarks: list[str]
    positive: str | None  # the label whose F1 is the metric "f1"; None: the macro or micro average
    classes: list[ClassScores]
    confusion_matrix: ConfusionMatrix | None
    confusions: list[Confusion]
    calibration: Calibration | None
    thresholds: list[ThresholdCurve]
    no_answer: NoAnswerCurve | None
    schemes: list[SchemeScores]
    groups: list[GroupScores]
    residuals: Residuals | None
    num_errors: int
    errors: list[ExampleError]


class EvaluationView(EvaluationFields):
    """What the page's view "evaluation" shows: also the name of the data, more errors with shortened texts, and the
    points of a regression."""

    data: str
    points: list[tuple[float, float]]
    notes: list[str]


class EvaluationResult(EvaluationFields, Result):
    """Metrics on `n` examples with 95% intervals, in percent (`mae` and `rmse` in the unit of the labels), and what is
    behind them. `errors` are the worst; `save_errors` writes all of them."""

    page_view: ClassVar[str | None] = "evaluation"
    view_type: ClassVar[str | None] = "regard.tasks.evaluation.result:EvaluationView"

    _data: str = PrivateAttr("")  # the name of the file
    _all_errors: Sequence[ExampleError] = PrivateAttr(default=())
    _points: Sequence[tuple[float, float]] = PrivateAttr(default=())

    def to_text(self) -> str:
        from regard.tasks.evaluation.terminal import report

        return report(self)

    def to_table(self) -> Table:
        """The scores of each class, type or group; without them the metrics."""
        names: tuple[str, ...]
        if self.classes:
            names = ("label", "precision", "recall", "f1", "support", "predicted")
            return names, [[getattr(one, name) for name in names] for one in self.classes]
        if self.groups:
            names = ("by", "group", "n", "exact_match", "f1")
            return names, [[getattr(one, name) for name in names] for one in self.groups]
        rows = [(name, value, *self.intervals.get(name, (None, None))) for name, value in self.metrics.items()]
        return ("metric", "value", "low", "high"), rows

    def errors_to_pandas(self) -> Any:
        """All errors as a DataFrame, the worst first; needs pandas."""
        import pandas  # type: ignore[import-untyped,unused-ignore]

        return pandas.DataFrame([_record(error) for error in self._all_errors])

    def save_errors(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write all errors, the worst first, to a CSV or JSONL file, which appears whole or not at all.

        A file that Regard did not write is replaced only with `force`.
        """
        with replace_output(path, force=force) as temporary:
            temporary.write_bytes(self.errors_file(Path(path).suffix.lower()))

    def errors_file(self, suffix: str) -> bytes:
        """The content of a file of all errors."""
        if suffix not in ERROR_FORMATS:
            raise InputError(f"errors are written to files that end in {' or '.join(ERROR_FORMATS)}, got {suffix!r}")
        records = [_record(error) for error in self._all_errors]
        if suffix == ".jsonl":
            lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            return "".join(lines).encode("utf-8", "backslashreplace")
        headers = dict.fromkeys(key for record in records for key in record) or ("row", "line", "label", "predicted")
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(headers), lineterminator="\n")
        writer.writeheader()
        for record in records:
            writer.writerow(
                {key: " | ".join(value) if isinstance(value, list) else value for key, value in record.items()}
            )
        return buffer.getvalue().encode("utf-8", "backslashreplace")

    def view_data(self) -> dict[str, object]:
        errors = [asdict(error) for error in _page_errors(self._all_errors)]
        for error in errors:
            error["texts"] = {name: _shortened(text) for name, text in error["texts"].items()}
        document: dict[str, object] = round_floats({**self.to_dict(), "errors": errors, "points": list(self._points)})
        return {**document, "data": self._data}


def _record(error: ExampleError) -> dict[str, Any]:
    """An error as a row of a table: its texts are columns, and what does not apply is left out."""
    rest = {name: value for name, value in asdict(error).items() if name not in ("row", "line", "texts")}
    optional = ("confidence", "probability", "kind", "score")
    rest = {name: value for name, value in rest.items() if name not in optional or value not in (None, "")}
    return {"row": error.row, "line": error.line, **error.texts, **rest}


def _page_errors(errors: Sequence[ExampleError]) -> list[ExampleError]:
    """The worst errors, and some of every cell of the confusion matrix, in their order."""
    cells: Counter[tuple[str, str]] = Counter()
    chosen: set[int] = set()
    for number, error in enumerate(errors):
        cell = (str(error.label), str(error.predicted))
        cells[cell] += 1
        if cells[cell] <= PAGE_ERRORS_PER_CELL and len(chosen) < PAGE_ERRORS:
            chosen.add(number)
    for number in range(len(errors)):
        if len(chosen) >= PAGE_ERRORS:
            break
        chosen.add(number)
    return [errors[number] for number in sorted(chosen)]


def _shortened(text: str) -> str:
    return text if len(text) <= PAGE_CHARACTERS else text[: PAGE_CHARACTERS - 1] + "…"
