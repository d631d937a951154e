"""`regard.evaluate`: the scores of a tuned folder on a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from regard.data.examples import Picture
from regard.data.readers import Read
from regard.device import choose_device
from regard.tasks.folder import computing, read_task
from regard.tasks.pictures import Frame
from regard.tasks.solve import score
from regard.training.finetuning.data import Source
from regard.training.finetuning.sources import Table, check_labels, read_examples

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
    table: Table | None = None,
    threshold: float | None = None,
    device: str = "auto",
    say: Callable[[str], None] = lambda text: None,
) -> Evaluation:
    """Score the model in `folder` on labelled examples, of a file or as a reader gives them.

    `threshold`, for answers: by how much the best must beat no answer at all.
    """
    place = choose_device(device)
    solved = read_task(folder, device=place).with_threshold(threshold)
    read = data if isinstance(data, Read) else read_examples(solved.task.name, data, table=table, labelled=True)
    say(computing(solved, place))
    say(f"{len(read.examples):,} examples of {read.path} ({read.how})")
    for reason, count in read.dropped.items():
        say(f"{count:,} left out: {reason}")
    frame, pictures = solved.rows, [one for one in read.examples if isinstance(one, Picture)]
    if isinstance(frame, Frame) and (other := frame.others(pictures)):
        say(f"{other:,} of them have another size than {frame.height} x {frame.width} and are resized")
    check_labels(solved.task, read)
    return Evaluation(solved.task.name, len(read.examples), score(solved, read.examples, device=place))
