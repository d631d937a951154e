"""The tasks of published models that classify or score sequences: of one text or two, as the input has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.examples import TextExample, example_values
from regard.data.readers import read_text_examples
from regard.errors import InputError, check_choice
from regard.tasks.regression import Regression
from regard.tasks.task import (
    PUBLISHED_LABELS,
    ColumnKind,
    ExplainedOutput,
    Prediction,
    ProblemType,
    Task,
    TaskInput,
    config_labels,
)
from regard.tasks.text_classification import TextClassification

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda logits: logits,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
}


class SequenceClassification(TextClassification):
    """One class, or any number of them (`multi_label`), for a text or a pair. Users see it as the task `classify`."""

    unknown_label: ClassVar[str] = PUBLISHED_LABELS
    num_texts: ClassVar[int | None] = None
    purpose: ClassVar[str] = "Classifies texts or pairs of texts"
    reader = staticmethod(partial(read_text_examples, task="sequence"))

    @classmethod
    def example(cls, text: str, second: str | None = None) -> TextExample:
        return TextExample(text, second)

    @classmethod
    def from_config(cls, document: Mapping[str, Any]) -> Task[TextExample]:
        """A `SequenceScoring` if there is one output."""
        labels, kind = config_labels(document), document.get("problem_type")
        if kind is not None:
            check_choice("problem_type", str(kind)[:60], get_args(ProblemType))
        if len(labels) == 1:
            return SequenceScoring(labels[0], activation="identity" if kind == "regression" else "sigmoid")
        if kind == "regression":
            raise InputError(f"problem_type is regression with {len(labels)} outputs; Regard supports one output")
        return cls(labels, multi_label=kind == "multi_label_classification")

    def continued(self, learned: Task[Any]) -> Task[Any] | None:
        """The labels of the data must be among those of the model."""
        if not isinstance(learned, TextClassification) or learned.multi_label != self.multi_label:
            return None
        return learned.with_labels(self.labels) if {*learned.labels} <= {*self.labels} else None


class SequenceScoring(Regression):
    """A score for a text or a pair: one logit and its `activation`. Users see it as the task `regress`."""

    purpose: ClassVar[str] = "Scores texts or pairs of texts"
    value_key: ClassVar[str] = "score"
    answer_keys: ClassVar[tuple[str, ...]] = ("score", "logit")

    def __init__(self, label: str, *, activation: str) -> None:
        check_choice("activation", activation, ACTIVATIONS)
        super().__init__(mean=0.0, deviation=1.0)
        self.label, self.activation = label, activation

    def with_activation(self, activation: str) -> SequenceScoring:
        """The task with another activation of the logit, one of `ACTIVATIONS`."""
        return SequenceScoring(self.label, activation=activation)

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.label,)

    @property
    def problem_type(self) -> ProblemType:
        return "multi_label_classification" if self.activation == "sigmoid" else "regression"

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "activation": self.activation}

    def continued(self, learned: Task[Any]) -> Task[Any] | None:
        """Training compares the logit itself with the numbers of the data."""
        return learned if isinstance(learned, Regression) and self.activation == "identity" else None

    def scores(self, logits: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](logits)

    def preprocess(self, examples: Sequence[TextExample], builder: Any) -> list[TaskInput]:
        """One sequence per text or pair, in the given order only."""
        inputs = builder.inputs([(example.text, example.text_pair) for example in examples])
        return [
            TaskInput(sequences, index, self._target(example.label))
            for index, (example, sequences) in enumerate(zip(examples, inputs, strict=True))
        ]

    def postprocess(
        self, examples: Sequence[TextExample], inputs: Sequence[TaskInput], logits: Sequence[Tensor]
    ) -> list[Prediction]:
        raw = torch.cat(list(logits)).double().squeeze(-1)
        scores = self.scores(raw)
        return [
            {**example_values(example), "score": score, "logit": logit}
            for example, score, logit in zip(examples, scores.tolist(), raw.tolist(), strict=True)
        ]

    @property
    def prediction_columns(self) -> dict[str, ColumnKind]:
        return {"score": "number", "logit": "number"}

    def to_columns(self, prediction: Prediction) -> dict[str, Any]:
        return {"score": prediction["score"], "logit": prediction["logit"]}

    def explained_outputs(
        self, example: TextExample, prediction: Prediction, inputs: TaskInput, tokens: Sequence[str]
    ) -> list[ExplainedOutput]:
        return [ExplainedOutput(self.label, 0, 0)]
