"""What every task can do, and what passes between its parts.

A task knows its examples: it makes rows of tokens with targets of them, a loss of the model's numbers, predictions of
the numbers and scores of the predictions. It knows no files, no optimizer and no device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.tasks.inputs import InputSequence

__all__ = ["LabelTask", "Prediction", "Task", "TaskInput", "kl_divergence", "read_labels", "unknown_label"]

Example = TypeVar("Example")
Prediction = dict[str, Any]  # JSON: what `regard predict` prints


@dataclass(frozen=True, eq=False)
class TaskInput:
    """Rows that have one target together, all or a part of example `owner`. `target` is None where it is not known."""

    sequences: tuple[InputSequence, ...]
    example: int
    target: Any = None
    extra: Any = None  # what the task wants to remember of it

    def __len__(self) -> int:
        return sum(map(len, self.sequences))


class Task(ABC, Generic[Example]):
    """`name` is the verb, `main` the score that decides which model is best, `pooled` whether one place speaks for a
    row and so gets a layer of its own; `kind` is what transformers calls such a model."""

    name: ClassVar[str]
    main_metric: ClassVar[str]
    transformers_head: ClassVar[str]
    pooled: ClassVar[bool]
    max_length: ClassVar[int]  # the most tokens of a row, unless it is set

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Numbers that the model gives for each place."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the outputs, where they have any."""
        return ()

    @classmethod
    @abstractmethod
    def from_examples(cls, examples: Sequence[Example]) -> Task[Example]:
        """The task that labeled examples set."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """What `restore` needs, as JSON."""

    @classmethod
    @abstractmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Task[Example]: ...

    @abstractmethod
    def check(self, example: Example) -> None:
        """InputError where its label, if it has one, is none that this task knows."""

    @abstractmethod
    def preprocess(self, examples: Sequence[Example], rows: Any) -> list[TaskInput]:
        """What the model reads, made by `rows`; a label that training has not seen is an error."""

    @abstractmethod
    def loss(self, numbers: Tensor, items: Sequence[TaskInput]) -> Tensor:
        """The mean loss of some items' (places, outputs)."""

    def distillation_loss(self, numbers: Tensor, wanted: Tensor, items: Sequence[TaskInput], softness: float) -> Tensor:
        """How far the numbers are from a teacher's, both softened: the divergence over the outputs of each place."""
        return kl_divergence(numbers, wanted, softness)

    @abstractmethod
    def postprocess(
        self, examples: Sequence[Example], items: Sequence[TaskInput], numbers: Sequence[Tensor]
    ) -> list[Prediction]:
        """One for each example; `numbers` has the (places, outputs) of each item."""

    @abstractmethod
    def compute_metrics(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> dict[str, float]:
        """In percent."""

    @property
    def has_calibration(self) -> bool:
        """Whether something of the task is decided on data that it is judged on."""
        return False

    def calibrate(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> tuple[Task[Example], Sequence[Prediction]]:
        """The task with what is best for labeled examples, and its predictions with that."""
        return self, predictions


class LabelTask(Task[Example]):
    """A task whose outputs are labels with names."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = tuple(labels)
        self._places = {label: place for place, label in enumerate(labels)}

    @property
    def num_outputs(self) -> int:
        return len(self._labels)

    @property
    def labels(self) -> tuple[str, ...]:
        return self._labels

    def _place(self, label: object) -> int:
        """The output of a label; InputError for one that training has not seen."""
        if label not in self._places:
            raise unknown_label(label, self._labels)
        return self._places[str(label)]


def read_labels(document: Mapping[str, Any]) -> list[str]:
    """The labels that a document of a task lists."""
    labels = document["labels"]
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError("the labels are not a list of names")
    if not labels or len({*labels}) < len(labels):
        raise ValueError("a label stands there twice, or there is none")
    return labels


def kl_divergence(numbers: Tensor, wanted: Tensor, softness: float) -> Tensor:
    """Kullback and Leibler's, of the last dimension, times the square of the softness, which gradients lose by it."""
    ours, theirs = (F.log_softmax(each / softness, dim=-1) for each in (numbers, wanted))
    return F.kl_div(ours, theirs, reduction="batchmean", log_target=True) * softness**2


def unknown_label(label: object, labels: Sequence[str]) -> InputError:
    """What to say of a label that the task does not have."""
    shown = ", ".join(map(repr, labels[:10])) + (f" and {len(labels) - 10} more" if len(labels) > 10 else "")
    return InputError(f"the label {label!r} does not occur in the training data, which has {shown}")
