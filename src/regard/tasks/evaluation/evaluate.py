"""Evaluation of a fine-tuned model on labeled examples."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from dataclasses import fields
from typing import Any

from regard.data.examples import Example, ImageExample, example_values
from regard.data.image_processor import ImageProcessor
from regard.data.readers import ExampleSet, RecordList, TableOptions
from regard.events import Event, Note, Progress
from regard.tasks.evaluation.parts import ErrorCase, TaskEvaluation
from regard.tasks.evaluation.result import EvaluationResult, ExampleError
from regard.tasks.fine_tuned_model import CHUNK_SIZE, FineTunedModel, describe_compute, predict_stream
from regard.tasks.registry import check_labels, read_examples
from regard.tasks.task import Prediction, Task

TOP = 10  # errors in a result
CPU_CHUNK_SIZE = 64  # examples


def evaluate_model(
    model: FineTunedModel,
    data: Any,
    *,
    name: str = "",
    table: TableOptions | None = None,
    top: int = TOP,
    seed: int = 0,
) -> Generator[Event, None, EvaluationResult]:
    """Evaluate a model on a file, a DataFrame, a list of dictionaries, tuples or examples, or an `ExampleSet`.

    The result has the `top` worst errors, and `save_errors` writes all of them. `seed` is that of the bootstrap, and
    `name` that of the model in the result.
    """
    device = model.device
    read = _read(model.task, data, table)
    yield Note(message=describe_compute(model, device))
    yield Note(message=f"{len(read.examples):,} examples of {read.path} ({read.description})")
    for reason, count in read.dropped.items():
        yield Note(message=f"{count:,} left out: {reason}")
    processor, images = model.input_builder, [one for one in read.examples if isinstance(one, ImageExample)]
    if isinstance(processor, ImageProcessor) and (resized := processor.count_resized(images)):
        size = "{} x {}".format(*processor.image_size)
        yield Note(message=f"{resized:,} of them have another size than {size} and are resized")
    check_labels(model.task, read)
    predictions: list[Prediction] = []
    yield Progress(stage="predicting", done=0, total=len(read.examples), unit="examples")
    # Small chunks on a CPU, so that progress is seen; a GPU needs large ones.
    chunk_size = CHUNK_SIZE if device.type == "cuda" else CPU_CHUNK_SIZE
    for prediction in predict_stream(model, read.examples, device=device, chunk_size=chunk_size):
        predictions.append(prediction)
        if len(predictions) % chunk_size == 0 or len(predictions) == len(read.examples):
            yield Progress(stage="predicting", done=len(predictions), total=len(read.examples), unit="examples")
    return evaluation_result(model.task, read, predictions, name=name, top=top, seed=seed)


def _read(task: Task[Any], data: Any, table: TableOptions | None) -> ExampleSet[Any]:
    if isinstance(data, ExampleSet):
        return data
    if isinstance(data, list | tuple) and data and all(isinstance(item, Example) for item in data):
        return ExampleSet(list(data), "the list", "examples")
    source = data if isinstance(data, str | os.PathLike) else RecordList.from_source(data)
    return read_examples(task, source, table=table, labeled=True)


def evaluation_result(
    task: Task[Any],
    read: ExampleSet[Any],
    predictions: Sequence[Prediction],
    *,
    name: str = "",
    top: int = TOP,
    seed: int = 0,
) -> EvaluationResult:
    """The evaluation of predictions for labeled examples."""
    evaluation = task.evaluate(read.examples, predictions, seed=seed)
    errors = [_example_error(read, case) for case in evaluation.errors]
    parts = {part.name: getattr(evaluation, part.name) for part in fields(TaskEvaluation)}
    points = parts.pop("points")
    parts |= {"errors": errors[:top], "num_errors": len(errors)}
    result = EvaluationResult(task=task.name, model=name, n=len(read.examples), **parts)
    result._data, result._all_errors, result._points = read.path, errors, points
    return result


def _example_error(read: ExampleSet[Any], case: ErrorCase) -> ExampleError:
    number = read.lines[case.index] if read.lines else case.index + 1
    in_lines = read.unit == "line" and bool(read.lines)
    return ExampleError(
        row=case.index if in_lines else number - 1,
        line=number if in_lines else None,
        texts=_texts(read.examples[case.index]),
        **{name: value for name, value in vars(case).items() if name != "index"},
    )


def _texts(example: Example) -> dict[str, str]:
    """The texts of an example by their names in tables."""
    values = example_values(example)
    endings = getattr(example, "endings", ())
    texts = {name: str(text) for name, text in values.items() if name not in ("id", "endings")}
    return texts | {f"ending{number}": ending for number, ending in enumerate(endings)}
