"""The interface of a task: examples to model inputs, a loss, predictions and metrics.

Each task is one file of this package and one entry of `regard.tasks.registry`. A task does not depend on an optimizer
or a device.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

import torch.nn.functional as F
from torch import Tensor

from regard.data.readers import ExampleSet, TableOptions
from regard.errors import InputError
from regard.tasks.inputs import InputSequence

Example = TypeVar("Example")
ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
Prediction = dict[str, Any]  # JSON: what `regard predict` prints


@dataclass(frozen=True, eq=False)
class TaskInput:
    """Sequences that share one target: all or a part of the example with index `example`. The target may be None."""

    sequences: tuple[InputSequence, ...]
    example: int
    target: Any = None
    extra: Any = None  # what the task needs in `postprocess`

    def __len__(self) -> int:
        return sum(map(len, self.sequences))


class Task(ABC, Generic[Example]):
    """A task that a model can be fine-tuned for.

    `main_metric` selects the best model. `pooled` tasks predict from one position per sequence, with a pooling layer
    before the output layer. `transformers_head` and `problem_type` are the names that transformers uses.
    """

    name: ClassVar[str]
    main_metric: ClassVar[str]
    transformers_head: ClassVar[str]
    pooled: ClassVar[bool]
    max_length: ClassVar[int]  # default maximum number of tokens per sequence
    data_format: ClassVar[str] = "labeled examples"  # of training files
    input_hint: ClassVar[str] = ""  # names on the page unless the input is one text
    reads_images: ClassVar[bool] = False
    reads_plain_text: ClassVar[bool] = False  # an example can be one line of plain text
    single_sequence: ClassVar[bool] = True  # a short example is one sequence
    softmax_over_tokens: ClassVar[bool] = False  # else over the outputs

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Logits per position."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the outputs, if they have any."""
        return ()

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels, if they are classes that occur in the training data."""
        return self.labels

    @property
    def initial_bias(self) -> float | None:
        """The bias of a new output layer, if it is not 0."""
        return None

    @property
    def problem_type(self) -> ProblemType | None:
        return None

    @classmethod
    @abstractmethod
    def read(
        cls, path: str | os.PathLike[str], table: TableOptions, *, labeled: bool | None = None
    ) -> ExampleSet[Example]:
        """Read the examples of a file. `labeled`: True requires labels, False ignores them, None reads them if any."""

    @classmethod
    @abstractmethod
    def example(cls, text: str, second: str | None = None) -> Example:
        """The example of one typed text, or of two; the InputError states what the task expects."""

    @classmethod
    @abstractmethod
    def from_examples(cls, examples: Sequence[Example]) -> Task[Example]:
        """The task that labeled examples define."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The parameters of the task as JSON, for `from_dict`."""

    @classmethod
    @abstractmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Task[Example]: ...

    @abstractmethod
    def check(self, example: Example) -> None:
        """Raise InputError for a label that the task does not have."""

    @abstractmethod
    def preprocess(self, examples: Sequence[Example], builder: Any) -> list[TaskInput]:
        """Convert examples to model inputs with an `InputBuilder` or `ImageTransform`."""

    def targets(self, example: Example, inputs: TaskInput) -> tuple[str, ...]:
        """For each predicted position of a single-sequence example, what the prediction is about."""
        return ("text",)

    @abstractmethod
    def loss(self, logits: Tensor, inputs: Sequence[TaskInput]) -> Tensor:
        """The mean loss for logits (positions, outputs)."""

    def distillation_loss(
        self, logits: Tensor, teacher_logits: Tensor, inputs: Sequence[TaskInput], temperature: float
    ) -> Tensor:
        """The KL divergence from a teacher's logits at a temperature; by default per position."""
        return kl_divergence(logits, teacher_logits, temperature)

    @abstractmethod
    def postprocess(
        self, examples: Sequence[Example], inputs: Sequence[TaskInput], logits: Sequence[Tensor]
    ) -> list[Prediction]:
        """One prediction per example; `logits` has the (positions, outputs) of each input."""

    @abstractmethod
    def compute_metrics(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Metrics in percent."""

    @property
    def has_calibration(self) -> bool:
        """Whether a parameter of the task is chosen on validation data."""
        return False

    def calibrate(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> tuple[Task[Example], Sequence[Prediction]]:
        """The task with the best parameter for labeled examples, and the predictions with this parameter."""
        return self, predictions


class LabelTask(Task[Example]):
    """A task whose outputs are named labels."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = tuple(labels)
        self._label_ids = {label: index for index, label in enumerate(labels)}

    @property
    def num_outputs(self) -> int:
        return len(self._labels)

    @property
    def labels(self) -> tuple[str, ...]:
        return self._labels

    def _label_id(self, label: object) -> int:
        if label not in self._label_ids:
            raise unknown_label(label, self._labels)
        return self._label_ids[str(label)]


def read_labels(document: Mapping[str, Any]) -> list[str]:
    """The labels of a task that was saved with `to_dict`."""
    labels = document["labels"]
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError("the labels are not a list of names")
    if not labels or len({*labels}) < len(labels):
        raise ValueError("a label is listed twice, or there is none")
    return labels


def kl_divergence(logits: Tensor, teacher_logits: Tensor, temperature: float) -> Tensor:
    """The KL divergence over the last dimension, times the squared temperature to keep gradients large."""
    ours, theirs = (F.log_softmax(each / temperature, dim=-1) for each in (logits, teacher_logits))
    return F.kl_div(ours, theirs, reduction="batchmean", log_target=True) * temperature**2


def unknown_label(label: object, labels: Sequence[str]) -> InputError:
    """The error for a label that the task does not have."""
    names = ", ".join(map(repr, labels[:10])) + (f" and {len(labels) - 10} more" if len(labels) > 10 else "")
    return InputError(f"the label {label!r} does not occur in the training data, which has {names}")
