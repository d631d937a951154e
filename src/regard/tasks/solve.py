"""Examples to predictions and scores with a model that was tuned for a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from regard.data.examples import Example, unlabelled
from regard.tasks.base import Prediction
from regard.tasks.folder import Solved
from regard.tasks.model import numbers

__all__ = ["AT_ONCE", "predict", "score", "settle", "stream"]

AT_ONCE = 512  # examples


def predict(solved: Solved, examples: Sequence[Example], *, device: torch.device) -> list[Prediction]:
    """One prediction an example. What labels the examples have is not looked at."""
    rows = solved.rows
    items = solved.task.items([unlabelled(example) for example in examples], rows)
    found: list[Tensor] = [torch.empty(0)] * len(items)
    for place, part in numbers(solved.model, items, device, precision=solved.precision):
        found[place] = part
    return solved.task.predictions(examples, items, found)


def stream(
    solved: Solved, examples: Iterable[Example], *, device: torch.device, at_once: int = AT_ONCE
) -> Iterator[Prediction]:
    """The same for any number of examples, of which only `at_once` are held at a time."""
    source = iter(examples)
    while some := list(islice(source, at_once)):
        yield from predict(solved, some, device=device)


def score(solved: Solved, examples: Sequence[Example], *, device: torch.device) -> dict[str, float]:
    """How the predictions compare with the labels, in percent."""
    return solved.task.scores(examples, list(stream(solved, examples, device=device)))


def settle(solved: Solved, examples: Sequence[Example], *, device: torch.device) -> tuple[Solved, dict[str, float]]:
    """The model with what its task decides on labelled examples, such as the threshold of no answer, and its scores.

    What is decided on examples makes their scores a little too good, as SQuAD's own "best F1" is.
    """
    task, predictions = solved.task.settled(examples, list(stream(solved, examples, device=device)))
    return replace(solved, task=task), task.scores(examples, predictions)
