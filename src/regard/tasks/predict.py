"""Predictions and metrics of a fine-tuned model."""

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

CHUNK_SIZE = 512  # examples


def predict(model: FineTunedModel, examples: Sequence[Example], *, device: torch.device) -> list[Prediction]:
    """One prediction per example; labels of the examples are ignored."""
    inputs = model.task.preprocess([without_label(example) for example in examples], model.input_builder)
    logits: list[Tensor] = [torch.empty(0)] * len(inputs)
    for index, part in compute_logits(model.model, inputs, device, precision=model.precision):
        logits[index] = part
    return model.task.postprocess(examples, inputs, logits)


def predict_stream(
    model: FineTunedModel, examples: Iterable[Example], *, device: torch.device, chunk_size: int = CHUNK_SIZE
) -> Iterator[Prediction]:
    """Predictions for any number of examples, with `chunk_size` of them in memory at a time."""
    source = iter(examples)
    while chunk := list(islice(source, chunk_size)):
        yield from predict(model, chunk, device=device)


def score(model: FineTunedModel, examples: Sequence[Example], *, device: torch.device) -> dict[str, float]:
    """The metrics on labeled examples, in percent."""
    return model.task.compute_metrics(examples, list(predict_stream(model, examples, device=device)))


def calibrate(
    model: FineTunedModel, examples: Sequence[Example], *, device: torch.device
) -> tuple[FineTunedModel, dict[str, float]]:
    """Choose the parameters of the task, such as the no-answer threshold, on labeled examples, and return its metrics.

    These metrics are slightly optimistic, as SQuAD's "best F1" is.
    """
    task, predictions = model.task.calibrate(examples, list(predict_stream(model, examples, device=device)))
    return replace(model, task=task), task.compute_metrics(examples, predictions)
