"""The interface of a task: examples to model inputs, a loss, predictions and metrics.

Each task is one file of this package and one entry of `regard.tasks.registry`. A task does not depend on an optimizer
or a device.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.readers import ExampleSet
from regard.errors import InputError, suggest
from regard.tasks.evaluation.parts import TaskEvaluation
from regard.tasks.inputs import InputSequence

Example = TypeVar("Example")
ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
Prediction = dict[str, Any]  # JSON: what `regard predict` prints
LossFunction = Callable[[Tensor, Tensor], Tensor]  # of logits and targets
ClassWeights = Literal["none", "balanced"] | Mapping[str, float]
# What a column of a table of predictions holds; the plurals are lists.
MAX_LISTED = 10  # classes in a summary
ColumnKind = Literal["string", "integer", "number", "strings", "numbers", "entities"]


@dataclass(frozen=True, eq=False)
class TaskInput:
    """Sequences that share one target: all or a part of the example with index `example`. The target may be None."""

    sequences: tuple[InputSequence, ...]
    example: int
    target: Any = None
    extra: Any = None  # what the task needs in `postprocess`

    def __len__(self) -> int:
        return sum(map(len, self.sequences))


class ExplainedOutput(NamedTuple):
    """An output of a prediction to explain: its description, and the indices of the target and the output."""

    about: str
    target: int
    output: int


class Task(ABC, Generic[Example]):
    """A task that a model can be fine-tuned for.

    `main_metric` selects the best model. `pooled` tasks predict from one position per sequence, with a pooling layer
    before the output layer. `transformers_head`, `output_layer` and `problem_type` are the names that transformers
    uses.
    """

    name: ClassVar[str]
    about: ClassVar[str]  # the help page of `regard train`: what is predicted, and the files that are read
    purpose: ClassVar[str]  # what a fine-tuned model does, for lists of models
    main_metric: ClassVar[str]
    transformers_head: ClassVar[str]
    pooled: ClassVar[bool]
    max_length: ClassVar[int]  # default maximum number of tokens per sequence
    # (path, table options, *, labeled); `labeled`: True requires labels, False ignores them, None reads them if any.
    reader: ClassVar[Callable[..., ExampleSet[Any]]]
    output_layer: ClassVar[str] = "classifier"  # unless the task is pooled
    training_defaults: ClassVar[Mapping[str, object]] = {}  # settings of fine-tuning that differ from the usual ones
    data_format: ClassVar[str] = "labeled examples"  # of training files
    input_hint: ClassVar[str] = ""  # names on the page unless the input is one text
    reads_images: ClassVar[bool] = False
    # Texts per example; None for one or two, 0 if an example is something else.
    num_texts: ClassVar[int | None] = 1
    answer_keys: ClassVar[tuple[str, ...]]  # of a prediction, without its input
    single_sequence: ClassVar[bool] = True  # a short example is one sequence
    softmax_over_tokens: ClassVar[bool] = False  # else over the outputs
    is_classification: ClassVar[bool] = False  # predicts one class, or several, for the whole text

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
    def summary(self) -> str:
        """What a model fine-tuned for this task does, with its classes."""
        more = f" and {len(self.classes) - MAX_LISTED} more" if len(self.classes) > MAX_LISTED else ""
        return f"{self.purpose}: {', '.join(self.classes[:MAX_LISTED])}{more}" if self.classes else self.purpose

    @property
    def transformers_labels(self) -> tuple[str, ...]:
        """The labels in config.json."""
        return self.labels

    @property
    def initial_bias(self) -> float | None:
        """The bias of a new output layer, if it is not 0."""
        return None

    @property
    def problem_type(self) -> ProblemType | None:
        return None

    @classmethod
    def has_own_format(cls, path: str | os.PathLike[str]) -> bool:
        """Whether a file is in a format of this task, which `reader` reads, and not a table or one text per line."""
        return False

    @classmethod
    @abstractmethod
    def example(cls, text: str, second: str | None = None) -> Example:
        """The example of one typed text, or of two; the InputError states what the task expects."""

    @classmethod
    def texts(cls, example: Example) -> tuple[str, str | None]:
        """The texts from which `example` makes this example. Raises InputError if there are none."""
        raise InputError(f"evidence is shown for one text or two, and the input of {cls.name} is another")

    @classmethod
    def from_examples(cls, examples: Sequence[Example]) -> Task[Example]:
        """The task that labeled examples define; by default one without parameters."""
        return cls()

    def to_dict(self) -> dict[str, Any]:
        """The parameters of the task as JSON, for `from_dict`."""
        return {}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Task[Example]:
        return cls()

    @classmethod
    def from_config(cls, document: Mapping[str, Any]) -> Task[Example]:
        """The task of a published model, from its config.json; InputError for what Regard does not support."""
        return cls()

    def continued(self, learned: Task[Any]) -> Task[Any] | None:
        """The task of a training on data of the task `learned` that goes on with the head of this published model.

        None: the data needs a new head.
        """
        return learned if learned.name == self.name else None

    @abstractmethod
    def check(self, example: Example) -> None:
        """Raise InputError for a label that the task does not have."""

    @abstractmethod
    def preprocess(self, examples: Sequence[Example], builder: Any) -> list[TaskInput]:
        """Convert examples to model inputs with an `InputBuilder` or `ImageProcessor`."""

    def targets(self, example: Example, inputs: TaskInput) -> tuple[str, ...]:
        """For each predicted position of a single-sequence example, what the prediction is about."""
        return ("text",)

    @abstractmethod
    def logits_and_targets(self, logits: Tensor, inputs: Sequence[TaskInput]) -> tuple[Tensor, Tensor]:
        """What a loss function compares, made of logits (positions, outputs).

        Of one choice among several each row has the logits of a choice, and the target is the index of the right one.
        """

    def class_weights(self, inputs: Sequence[TaskInput], weights: ClassWeights) -> Tensor | None:
        """The weight of each output in the loss; None for equal weights."""
        if weights != "none":
            raise InputError(
                f"class weights are for tasks with classes, classify, pair and tag, and this task is {self.name}; "
                "leave them out"
            )
        return None

    def loss_function(self, class_weights: Tensor | None = None) -> LossFunction:
        """The mean loss of `logits_and_targets`."""
        return F.cross_entropy

    def loss(self, logits: Tensor, inputs: Sequence[TaskInput], function: LossFunction | None = None) -> Tensor:
        """The loss for logits (positions, outputs), by default that of `loss_function`."""
        return (function or self.loss_function())(*self.logits_and_targets(logits, inputs))

    def target_weight(self, inputs: Sequence[TaskInput], class_weights: Tensor | None = None) -> float:
        """The weight of inputs in the mean of `loss_function`: the number of their targets, up to a factor."""
        return float(len(inputs))

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

    def scores(self, logits: Tensor) -> Tensor:
        """What a prediction states of logits (texts, labels): probabilities, or the numbers themselves."""
        return logits

    def explained_outputs(
        self, example: Example, prediction: Prediction, inputs: TaskInput, tokens: Sequence[str]
    ) -> list[ExplainedOutput]:
        """The outputs of a prediction that evidence is shown for; `tokens` are those of the single sequence."""
        return []

    @property
    @abstractmethod
    def prediction_columns(self) -> dict[str, ColumnKind]:
        """The columns of a table of predictions, which has one row per example."""

    @abstractmethod
    def to_columns(self, prediction: Prediction) -> dict[str, Any]:
        """The cells of these columns for a prediction."""

    @abstractmethod
    def compute_metrics(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Metrics in percent."""

    @abstractmethod
    def evaluate(
        self, examples: Sequence[Example], predictions: Sequence[Prediction], *, seed: int = 0
    ) -> TaskEvaluation:
        """`compute_metrics` with intervals, and everything else that `regard evaluate` reports."""

    @property
    def has_calibration(self) -> bool:
        """Whether a parameter of the task is chosen on validation data."""
        return False

    def calibrate(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> tuple[Task[Example], Sequence[Prediction]]:
        """The task with the best parameter for labeled examples, and the predictions with this parameter."""
        return self, predictions

    def with_threshold(self, threshold: float) -> Task[Example]:
        """The task with another margin by which an answer must exceed "no answer"."""
        raise InputError(
            f"only models that answer questions have a threshold for no answer, and the task of this model is "
            f"{self.name}"
        )

    def with_aggregation(self, aggregation: str) -> Task[Example]:
        """The task with another way of joining tokens to entities."""
        raise InputError(
            f"only models that tag tokens and that Regard did not train have an aggregation; this one does {self.name}"
        )


# What an error says of a label that is none of a published model.
PUBLISHED_LABELS = "is not among the labels in the config.json of the model, which are"


class LabelTask(Task[Example]):
    """A task whose outputs are named labels."""

    unknown_label: ClassVar[str] = "does not occur in the training data, which has"

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = tuple(labels)
        self._label_ids = {label: index for index, label in enumerate(labels)}

    @property
    def num_outputs(self) -> int:
        return len(self._labels)

    @property
    def labels(self) -> tuple[str, ...]:
        return self._labels

    @abstractmethod
    def target_tensor(self, inputs: Sequence[TaskInput]) -> Tensor:
        """The index of the label of each position, (positions,); or 0 and 1 for each label, (positions, labels)."""

    def logits_and_targets(self, logits: Tensor, inputs: Sequence[TaskInput]) -> tuple[Tensor, Tensor]:
        return logits, self.target_tensor(inputs).to(logits.device)

    def class_weights(self, inputs: Sequence[TaskInput], weights: ClassWeights) -> Tensor | None:
        """The weights of classes in the loss, (labels,); where a text has several labels, those of positive targets.

        "balanced" weighs a class by n / (k * count), as scikit-learn does, for n targets of k classes that occur; and a
        positive target by the number of negative ones for each positive one.
        """
        if weights == "none":
            return None
        result = torch.ones(self.num_outputs)
        if isinstance(weights, Mapping):
            for label, weight in weights.items():
                if label not in self._label_ids:
                    raise InputError(f"class_weights: no class {label!r}; {suggest(label, self._labels)}")
                result[self._label_ids[label]] = weight
            return result
        targets = self.target_tensor(inputs)
        if targets.dim() == 2:
            positive = targets.sum(0)
            return torch.where(positive > 0, (len(targets) - positive) / positive.clamp(min=1), result)
        counts = torch.bincount(targets, minlength=self.num_outputs)
        occurring = counts > 0
        return torch.where(occurring, len(targets) / (occurring.sum() * counts.clamp(min=1)), result)

    def loss_function(self, class_weights: Tensor | None = None) -> LossFunction:
        def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
            weight = None if class_weights is None else class_weights.to(logits)
            if targets.dim() == 2:
                return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=weight)
            return F.cross_entropy(logits, targets, weight=weight)

        return cross_entropy

    def target_weight(self, inputs: Sequence[TaskInput], class_weights: Tensor | None = None) -> float:
        targets = self.target_tensor(inputs)
        if class_weights is None or targets.dim() == 2 or not len(targets):
            return float(len(targets))
        return float(class_weights[targets].sum())

    def _label_id(self, label: object) -> int:
        if label not in self._label_ids:
            more = len(self._labels) - 10
            names = ", ".join(map(repr, self._labels[:10])) + (f" and {more} more" if more > 0 else "")
            raise InputError(f"the label {label!r} {self.unknown_label} {names}")
        return self._label_ids[str(label)]


def read_labels(document: Mapping[str, Any]) -> list[str]:
    """The labels of a task that was saved with `to_dict`."""
    labels = document["labels"]
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError("the labels are not a list of names")
    if not labels or len({*labels}) < len(labels):
        raise ValueError("a label is listed twice, or there is none")
    return labels


def config_labels(document: Mapping[str, Any]) -> list[str]:
    """The labels that a config.json lists in `id2label`; LABEL_0 and so on if it has only their number."""
    names, count = document.get("id2label"), document.get("num_labels")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise InputError(f"num_labels is {str(count)[:60]!r}; expected a number from 1")
    if names is None:
        return [f"LABEL_{index}" for index in range(2 if count is None else count)]  # 2 as in transformers
    if not isinstance(names, dict) or not names:
        raise InputError(f"id2label is {str(names)[:60]!r}; expected an object with the name of each label")
    labels = []
    for index in range(len(names)):
        label = names.get(str(index))
        if label is None:
            raise InputError(f"id2label has {len(names)} labels and none for {index}; they are numbered from 0")
        if str(label) in labels:
            raise InputError(f"id2label has the label {str(label)[:60]!r} twice; give each its own name")
        labels.append(str(label))
    if count not in (None, len(labels)):
        raise InputError(f"num_labels is {count}, and id2label has {len(labels)} labels; correct one of them")
    return labels


def kl_divergence(logits: Tensor, teacher_logits: Tensor, temperature: float) -> Tensor:
    """The KL divergence over the last dimension, times the squared temperature to keep gradients large."""
    ours, theirs = (F.log_softmax(each / temperature, dim=-1) for each in (logits, teacher_logits))
    return F.kl_div(ours, theirs, reduction="batchmean", log_target=True) * temperature**2


def pad_rows(rows: Sequence[Tensor]) -> Tensor:
    """Logits of different lengths as one tensor; the padding has no probability."""
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=torch.finfo(rows[0].dtype).min)
