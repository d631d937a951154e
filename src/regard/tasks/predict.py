"""Examples to predictions and scores with a model that was tuned for a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from regard.data.examples import Example, without_label
from regard.tasks.encoder_with_head import compute_logits
from regard.tasks.task import Prediction
from regard.tasks.task_folder import FineTunedModel

__all__ = ["CHUNK_SIZE", "calibrate", "predict", "predict_stream", "score"]

CHUNK_SIZE = 512  # examples


def predict(solved: FineTunedModel, examples: Sequence[Example], *, device: torch.device) -> list[Prediction]:
    """One prediction an example. What labels the examples have is not looked at."""
    rows = solved.input_builder
    items = solved.task.preprocess([without_label(example) for example in examples], rows)
    found: list[Tensor] = [torch.empty(0)] * len(items)
    for place, part in compute_logits(solved.model, items, device, precision=solved.precision):
        found[place] = part
    return solved.task.postprocess(examples, items, found)


def predict_stream(
    solved: FineTunedModel, examples: Iterable[Example], *, device: torch.device, at_once: int = CHUNK_SIZE
) -> Iterator[Prediction]:
    """The same for any number of examples, of which only `at_once` are held at a time."""
    source = iter(examples)
    while some := list(islice(source, at_once)):
        yield from predict(solved, some, device=device)


def score(solved: FineTunedModel, examples: Sequence[Example], *, device: torch.device) -> dict[str, float]:
    """How the predictions compare with the labels, in percent."""
    return solved.task.compute_metrics(examples, list(predict_stream(solved, examples, device=device)))


def calibrate(
    solved: FineTunedModel, examples: Sequence[Example], *, device: torch.device
) -> tuple[FineTunedModel, dict[str, float]]:
    """The model with what its task decides on labeled examples, such as the threshold of no answer, and its scores.

    What is decided on examples makes their scores a little too good, as SQuAD's own "best F1" is.
    """
    task, predictions = solved.task.calibrate(examples, list(predict_stream(solved, examples, device=device)))
    return replace(solved, task=task), task.compute_metrics(examples, predictions)
