"""`regard.evaluate`: the scores of a fine-tuned model on a file."""

from __future__ import annotations

import os
from dataclasses import dataclass

from regard.data.examples import Picture
from regard.data.readers import Read
from regard.device import choose
from regard.tasks.folder import computing, read_task
from regard.tasks.pictures import Frame
from regard.tasks.solve import score
from regard.training.events import Note, OnEvent, ignore_event
from regard.training.finetuning.data import DataSource, TableOptions, check_labels, read_examples

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
    """Score the model in `folder` on labelled examples: a file, or examples from a reader.

    `threshold` is for question answering: the margin by which an answer must beat no answer.
    """
    place = choose(device)
    fine_tuned = read_task(folder, device=place).with_threshold(threshold)
    read = data if isinstance(data, Read) else read_examples(fine_tuned.task.name, data, table=table, labelled=True)
    on_event(Note(message=computing(fine_tuned, place)))
    on_event(Note(message=f"{len(read.examples):,} examples of {read.path} ({read.how})"))
    for reason, count in read.dropped.items():
        on_event(Note(message=f"{count:,} left out: {reason}"))
    frame, pictures = fine_tuned.rows, [one for one in read.examples if isinstance(one, Picture)]
    if isinstance(frame, Frame) and (other := frame.others(pictures)):
        on_event(
            Note(message=f"{other:,} of them have another size than {frame.height} x {frame.width} and are resized")
        )
    check_labels(fine_tuned.task, read)
    return Evaluation(fine_tuned.task.name, len(read.examples), score(fine_tuned, read.examples, device=place))
