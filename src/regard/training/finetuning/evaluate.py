"""`regard.evaluate`: the scores of a tuned folder on a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from regard.data.examples import ImageExample
from regard.data.readers import ExampleSet, TableOptions
from regard.device import choose_device
from regard.tasks.image_classification import ImageTransform
from regard.tasks.predict import score
from regard.tasks.read_examples import check_labels, read_examples
from regard.tasks.task_folder import describe_compute, load_fine_tuned
from regard.training.finetuning.data import Source

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True)
class Evaluation:
    """`metrics` are in percent."""

    task: str
    count: int
    metrics: dict[str, float]


def evaluate(
    folder: str | os.PathLike[str],
    data: Source,
    *,
    table: TableOptions | None = None,
    threshold: float | None = None,
    device: str = "auto",
    say: Callable[[str], None] = lambda text: None,
) -> Evaluation:
    """Score the model in `folder` on labeled examples, of a file or as a reader gives them.

    `threshold`, for answers: by how much the best must beat no answer at all.
    """
    place = choose_device(device)
    solved = load_fine_tuned(folder, device=place).with_threshold(threshold)
    read = data if isinstance(data, ExampleSet) else read_examples(solved.task.name, data, table=table, labeled=True)
    say(describe_compute(solved, place))
    say(f"{len(read.examples):,} examples of {read.path} ({read.description})")
    for reason, count in read.dropped.items():
        say(f"{count:,} left out: {reason}")
    frame, pictures = solved.input_builder, [one for one in read.examples if isinstance(one, ImageExample)]
    if isinstance(frame, ImageTransform) and (other := frame.count_resized(pictures)):
        say(f"{other:,} of them have another size than {frame.height} x {frame.width} and are resized")
    check_labels(solved.task, read)
    return Evaluation(solved.task.name, len(read.examples), score(solved, read.examples, device=place))
