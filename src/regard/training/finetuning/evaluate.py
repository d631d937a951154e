"""`regard.evaluate`: the scores of a fine-tuned model on a file."""

from __future__ import annotations

import os
from dataclasses import dataclass

from regard.data.examples import ImageExample
from regard.data.readers import ExampleSet, TableOptions
from regard.device import choose_device
from regard.tasks.image_classification import ImageTransform
from regard.tasks.predict import score
from regard.tasks.read_examples import check_labels, read_examples
from regard.tasks.task_folder import describe_compute, load_fine_tuned
from regard.training.events import Note, OnEvent, ignore_event
from regard.training.finetuning.data import DataSource

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True)
class Evaluation:
    """`metrics` are in percent."""

    task: str
    count: int
    metrics: dict[str, float]


def evaluate(
    folder: str | os.PathLike[str],
    data: DataSource,
    *,
    table: TableOptions | None = None,
    threshold: float | None = None,
    device: str = "auto",
    on_event: OnEvent = ignore_event,
) -> Evaluation:
    """Score the model in `folder` on labeled examples: a file, or examples from a reader.

    `threshold` is for question answering: the margin by which an answer must beat no answer.
    """
    place = choose_device(device)
    fine_tuned = load_fine_tuned(folder, device=place).with_threshold(threshold)
    read = (
        data if isinstance(data, ExampleSet) else read_examples(fine_tuned.task.name, data, table=table, labeled=True)
    )
    on_event(Note(message=describe_compute(fine_tuned, place)))
    on_event(Note(message=f"{len(read.examples):,} examples of {read.path} ({read.description})"))
    for reason, count in read.dropped.items():
        on_event(Note(message=f"{count:,} left out: {reason}"))
    frame, pictures = fine_tuned.input_builder, [one for one in read.examples if isinstance(one, ImageExample)]
    if isinstance(frame, ImageTransform) and (other := frame.count_resized(pictures)):
        on_event(
            Note(message=f"{other:,} of them have another size than {frame.height} x {frame.width} and are resized")
        )
    check_labels(fine_tuned.task, read)
    return Evaluation(fine_tuned.task.name, len(read.examples), score(fine_tuned, read.examples, device=place))
