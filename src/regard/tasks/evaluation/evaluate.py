"""The metrics of a fine-tuned model on labeled examples."""

from __future__ import annotations

from collections.abc import Generator

from regard.data.examples import ImageExample
from regard.data.readers import ExampleSet, TableOptions
from regard.events import Event, Note
from regard.render.result import Result, Table
from regard.tasks.fine_tuned_model import FineTunedModel, describe_compute, score
from regard.tasks.image_classification import ImageTransform
from regard.tasks.registry import DataSource, check_labels, read_examples
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
