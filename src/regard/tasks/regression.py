"""Regression: a number for each text or pair of texts, such as a similarity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.examples import TextExample, example_values
from regard.data.readers import read_text_examples
from regard.errors import InputError
from regard.tasks.evaluation.parts import TaskEvaluation
from regard.tasks.evaluation.values import evaluate_values
from regard.tasks.inputs import InputBuilder
from regard.tasks.metrics import value_scores
from regard.tasks.task import ColumnKind, ExplainedOutput, LossFunction, Prediction, ProblemType, Task, TaskInput


class Regression(Task[TextExample]):
    """`mean` and `deviation` are those of the training labels; the loss is measured in deviations."""

    name: ClassVar[str] = "regress"
    purpose: ClassVar[str] = "Predicts a number for a text or a pair of texts"
    about: ClassVar[str] = """A number for a text or pair: similarity.

    Reads TSV, CSV, JSONL and Parquet: one or two texts and a number."""
    reader = staticmethod(partial(read_text_examples, task="regress"))
    training_defaults: ClassVar[Mapping[str, object]] = {"num_epochs": 5}
    data_format: ClassVar[str] = "TSV or CSV with one or two texts and a number"
    main_metric: ClassVar[str] = "spearman"
    transformers_head: ClassVar[str] = "SequenceClassification"
    pooled: ClassVar[bool] = True
    max_length: ClassVar[int] = 256
    num_texts: ClassVar[int | None] = None
    answer_keys: ClassVar[tuple[str, ...]] = ("value",)
    value_key: ClassVar[str] = "value"  # of a prediction: the number

    def __init__(self, mean: float, deviation: float) -> None:
        self.mean, self.deviation = mean, deviation

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def labels(self) -> tuple[str, ...]:
        return ("value",)

    @property
    def classes(self) -> tuple[str, ...]:
        return ()

    @property
    def initial_bias(self) -> float:
        return self.mean

    @property
    def problem_type(self) -> ProblemType:
        return "regression"

    @classmethod
    def example(cls, text: str, second: str | None = None) -> TextExample:
        return TextExample(text, second)

    @classmethod
    def texts(cls, example: TextExample) -> tuple[str, str | None]:
        return example.text, example.text_pair

    @classmethod
    def from_examples(cls, examples: Sequence[TextExample]) -> Regression:
        values = torch.tensor([_number(example.label) for example in examples], dtype=torch.double)
        deviation = values.std(unbiased=False).item() if len(values) else 0.0
        if not deviation:
            raise InputError("expected different numbers as labels, and all labels of the training data are equal")
        return cls(values.mean().item(), deviation)

    def to_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "deviation": self.deviation}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Regression:
        return cls(float(document["mean"]), float(document["deviation"]))

    def check(self, example: TextExample) -> None:
        if example.label is not None:
            _number(example.label)

    def preprocess(self, examples: Sequence[TextExample], builder: InputBuilder) -> list[TaskInput]:
        inputs = builder.inputs([(example.text, example.text_pair) for example in examples])
        # The order of a pair has no meaning, but a causal model reads in one direction, so it gets both orders.
        both = builder.causal and builder.vectors is None and builder.published is None
        pairs = [example for example in examples if both and example.text_pair is not None]
        swapped = iter(builder.sequences([(example.text_pair or "", example.text) for example in pairs]))
        return [
            TaskInput(
                (*sequences, next(swapped)) if both and example.text_pair is not None else sequences,
                index,
                self._target(example.label),
            )
            for index, (example, sequences) in enumerate(zip(examples, inputs, strict=True))
        ]

    def _target(self, label: object) -> float | None:
        return None if label is None else _number(label)

    def logits_and_targets(self, logits: Tensor, inputs: Sequence[TaskInput]) -> tuple[Tensor, Tensor]:
        """The predicted and the right numbers, (texts,)."""
        counts = [sum(len(sequence.positions or ()) for sequence in item.sequences) for item in inputs]
        parts = torch.split(logits.squeeze(-1), counts)
        targets = torch.tensor([item.target for item in inputs], device=logits.device)
        return torch.stack([part.mean() for part in parts]), targets

    def loss_function(self, class_weights: Tensor | None = None) -> LossFunction:
        return lambda values, targets: F.mse_loss(values, targets) / self.deviation**2

    def distillation_loss(
        self, logits: Tensor, teacher_logits: Tensor, inputs: Sequence[TaskInput], temperature: float
    ) -> Tensor:
        """The squared difference; the temperature does not apply to numbers."""
        return F.mse_loss(logits, teacher_logits) / self.deviation**2

    def postprocess(
        self, examples: Sequence[TextExample], inputs: Sequence[TaskInput], logits: Sequence[Tensor]
    ) -> list[Prediction]:
        pairs = zip(examples, logits, strict=True)
        return [{**example_values(example), "value": value.double().mean().item()} for example, value in pairs]

    @property
    def prediction_columns(self) -> dict[str, ColumnKind]:
        return {"value": "number"}

    def to_columns(self, prediction: Prediction) -> dict[str, Any]:
        return {"value": prediction["value"]}

    def explained_outputs(
        self, example: TextExample, prediction: Prediction, inputs: TaskInput, tokens: Sequence[str]
    ) -> list[ExplainedOutput]:
        return [ExplainedOutput("value", 0, 0)]

    def compute_metrics(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        truth = [_number(example.label) for example in examples]
        return value_scores(truth, [prediction[self.value_key] for prediction in predictions])

    def evaluate(
        self, examples: Sequence[TextExample], predictions: Sequence[Prediction], *, seed: int = 0
    ) -> TaskEvaluation:
        truth = np.array([_number(example.label) for example in examples])
        predicted = np.array([prediction[self.value_key] for prediction in predictions])
        return evaluate_values(truth, predicted, metrics=self.compute_metrics(examples, predictions), seed=seed)


def _number(label: object) -> float:
    if not isinstance(label, float | int) or not math.isfinite(label):
        raise InputError(f"expected a finite number as label, got {label!r}")
    return float(label)
