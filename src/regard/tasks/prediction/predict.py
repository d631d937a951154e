"""Predicts the rows of an input, one group of rows in memory at a time, in the order of the input."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from regard.data.batch import group_by_size
from regard.data.examples import Example, ImageExample, example_values
from regard.events import Event, Note, Progress, ResultItem, drain
from regard.tasks.fine_tuned_model import FineTunedModel, predict_steps
from regard.tasks.prediction.inputs import InputRow, PredictionInput
from regard.tasks.prediction.result import PAGE_EXAMPLES, PredictionTable, PredictResult, json_line, printed_row
from regard.tasks.task import Prediction
from regard.wording import count_of

GROUP_SIZE = 512  # rows until the first predictions are printed


def predict_rows(
    model: FineTunedModel, rows: Sequence[InputRow]
) -> Generator[int, None, tuple[list[Prediction | None], int]]:
    """Predict rows in batches of similar length: yields the number of finished rows.

    Returns the prediction of each row, None for those without a text, and the number of truncated examples.
    """
    examples = [row.example for row in rows if row.example is not None]
    predictions, truncated = yield from predict_steps(model, examples, device=model.device)
    found = iter(predictions)
    return [None if row.example is None else next(found) for row in rows], truncated


def row_size(row: InputRow) -> int:
    """The characters of a row; an image counts as the numbers that it has."""
    if row.example is None:
        return 0
    if isinstance(row.example, ImageExample):
        return int(row.example.pixels.size)
    return sum(len(str(value)) for value in example_values(row.example).values())


def prediction_events(
    model: FineTunedModel, inputs: PredictionInput, *, name: str = "", group_size: int = GROUP_SIZE
) -> Generator[Event, None, PredictResult]:
    """Predict all rows and yield each prediction as a `ResultItem`.

    The result does not hold the predictions: whoever needs all of them collects the items. `name` is the folder of the
    model.
    """
    total = None
    if inputs.typed:
        total = 1
    elif inputs.reopen is not None and inputs.rereadable:  # also finds mistakes in the input before the work
        total = sum(1 for _ in inputs.reopen())
        yield Note(message=reading_note(inputs, total))
    else:
        yield Note(message=reading_note(inputs))
    result_rows = blank = all_truncated = 0
    first: list[tuple[Example, Prediction]] = []
    for group in group_by_size(inputs.rows, row_size, most=group_size):
        predictions, truncated = yield from _with_progress(model, group, result_rows, total)
        for row, prediction in zip(group, predictions, strict=True):
            if row.example is not None and prediction is not None and len(first) < PAGE_EXAMPLES:
                first.append((row.example, prediction))
            printed = printed_row(row, prediction, model.task)
            yield ResultItem(text=json_line(printed) + "\n", item=printed)
        blank += predictions.count(None)
        all_truncated += truncated
        result_rows += len(group)
        yield Progress(stage="predicting", done=result_rows, total=total, unit="rows")
    skipped, note = inputs.skipped
    result = PredictResult(
        model=name or model.name,
        task=model.task.name,
        rows=result_rows,
        blank=blank,
        skipped=skipped,
        truncated=all_truncated,
        predictions=[],
    )
    result._fine_tuned, result._first, result._skipped_note = model, first, note
    result._table = PredictionTable(model.task, inputs.kept, lines=inputs.has_lines)
    return result


def _with_progress(
    model: FineTunedModel, group: Sequence[InputRow], before: int, total: int | None
) -> Generator[Event, None, tuple[list[Prediction | None], int]]:
    steps = predict_rows(model, group)
    while True:
        try:
            done = next(steps)
        except StopIteration as end:
            found: tuple[list[Prediction | None], int] = end.value
            return found
        if len(group) > 1:
            yield Progress(stage="predicting", done=before + done, total=total, unit="rows")


def reading_note(inputs: PredictionInput, rows: int | None = None) -> str:
    """How the input was read: its format, the columns with the texts, its rows."""
    count = "" if rows is None else f"; {count_of(rows, 'row')}"
    return f"{inputs.name}: {inputs.description}{count}"


def predict_input(model: FineTunedModel, inputs: PredictionInput) -> PredictResult:
    """All predictions of an input in memory."""
    items: list[Prediction] = []

    def collect(event: Event) -> None:
        if isinstance(event, ResultItem):
            items.append(event.item)

    result = drain(prediction_events(model, inputs, group_size=8 * GROUP_SIZE), collect)
    return result.model_copy(update={"predictions": items})
