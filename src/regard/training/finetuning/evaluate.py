"""The metrics of a fine-tuned model on labeled examples."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator

from regard.data.examples import ImageExample
from regard.data.readers import ExampleSet, TableOptions
from regard.device import choose_device
from regard.events import Event, Note, drain
from regard.render.result import Result, Table
from regard.tasks.fine_tuned_model import FineTunedModel, describe_compute, load_fine_tuned, score
from regard.tasks.image_classification import ImageTransform
from regard.tasks.registry import check_labels, read_examples
from regard.training.finetuning.run import DataSource
from regard.wording import count_of


class EvaluationResult(Result):
    """Metrics in percent on `n` examples."""

    task: str
    n: int
    metrics: dict[str, float]

    def to_text(self) -> str:
        lines = [f"{name:<20}{value:6.2f}" for name, value in self.metrics.items()]
        return "\n".join([f"{self.task}, {count_of(self.n, 'example')}", *lines])

    def to_table(self) -> Table:
        return ("metric", "percent"), list(self.metrics.items())


def evaluate_model(
    model: FineTunedModel, data: DataSource, *, table: TableOptions | None = None
) -> Generator[Event, None, EvaluationResult]:
    """Evaluate a model on a file or on examples that a reader returned."""
    device = next(model.model.parameters()).device
    read = data if isinstance(data, ExampleSet) else read_examples(model.task.name, data, table=table, labeled=True)
    yield Note(message=describe_compute(model, device))
    yield Note(message=f"{len(read.examples):,} examples of {read.path} ({read.description})")
    for reason, count in read.dropped.items():
        yield Note(message=f"{count:,} left out: {reason}")
    transform, images = model.input_builder, [one for one in read.examples if isinstance(one, ImageExample)]
    if isinstance(transform, ImageTransform) and (resized := transform.count_resized(images)):
        size = f"{transform.height} x {transform.width}"
        yield Note(message=f"{resized:,} of them have another size than {size} and are resized")
    check_labels(model.task, read)
    metrics = score(model, read.examples, device=device)
    return EvaluationResult(task=model.task.name, n=len(read.examples), metrics=metrics)


def evaluate(
    folder: str | os.PathLike[str],
    data: DataSource,
    *,
    table: TableOptions | None = None,
    threshold: float | None = None,
    device: str = "auto",
    on_event: Callable[[Event], object] | None = None,
) -> EvaluationResult:
    """Load the model in `folder` and evaluate it."""
    model = load_fine_tuned(folder, device=choose_device(device)).with_threshold(threshold)
    return drain(evaluate_model(model, data, table=table), on_event)
