"""Tasks with one answer a text or pair: a class, several classes, or a number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.examples import ImageExample, TextExample
from regard.errors import InputError
from regard.tasks.inputs import InputBuilder
from regard.tasks.metrics import label_scores, multilabel_scores, value_scores
from regard.tasks.metrics.labels import positive_label as choose_positive
from regard.tasks.task import LabelTask, Prediction, Task, TaskInput, read_labels

__all__ = ["PairClassification", "Regression", "TextClassification"]


class TextClassification(LabelTask[TextExample]):
    """One class a text, or any number of them where labels are tuples."""

    name: ClassVar[str] = "classify"
    main_metric: ClassVar[str] = "accuracy"
    transformers_head: ClassVar[str] = "SequenceClassification"
    pooled: ClassVar[bool] = True
    max_length: ClassVar[int] = 128

    def __init__(self, labels: Sequence[str], *, multi_label: bool = False, positive_label: str | None = None) -> None:
        """`positive_label`: which of two labels F1 is about."""
        super().__init__(labels)
        self.multi_label, self.positive_label = multi_label, positive_label

    @classmethod
    def from_examples(cls, examples: Sequence[TextExample]) -> TextClassification:
        found = [example.label for example in examples if example.label is not None]
        several = any(isinstance(label, tuple) for label in found)
        counts = Counter(name for label in found for name in (label if isinstance(label, tuple) else (str(label),)))
        if len(counts) < (1 if several else 2):
            only = f"only {next(iter(counts))!r}" if counts else "none"
            raise InputError(f"expected at least two classes to tell apart, and the training data has {only}")
        # Decided here and once: judged by the file that is scored, F1 could be of another class in each.
        two = len(counts) == 2 and not several
        return cls(
            sorted(counts), multi_label=several, positive_label=choose_positive([*counts.elements()]) if two else None
        )

    def to_dict(self) -> dict[str, Any]:
        return {"labels": list(self._labels), "several": self.multi_label, "positive": self.positive_label}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> TextClassification:
        return cls(
            read_labels(document), multi_label=bool(document["several"]), positive_label=document.get("positive")
        )

    def check(self, example: TextExample) -> None:
        self._target(example.label)

    def preprocess(self, examples: Sequence[TextExample], rows: InputBuilder) -> list[TaskInput]:
        refuse_images(examples)
        made = rows.sequences([(example.text, example.second) for example in examples])
        return [
            TaskInput((row,), place, self._target(example.label))
            for place, (row, example) in enumerate(zip(made, examples, strict=True))
        ]

    def _target(self, label: object) -> Any:
        if label is None:
            return None
        names = label if isinstance(label, tuple) else (label,)
        if isinstance(label, tuple) and not self.multi_label:
            raise InputError(f"the label is the list {list(label)!r}, and this task has one label a text")
        places = [self._place(name) for name in names]
        return [float(place in places) for place in range(self.num_outputs)] if self.multi_label else places[0]

    def loss(self, numbers: Tensor, items: Sequence[TaskInput]) -> Tensor:
        targets = torch.tensor([item.target for item in items], device=numbers.device)
        if self.multi_label:
            return F.binary_cross_entropy_with_logits(numbers, targets)
        return F.cross_entropy(numbers, targets)

    def distillation_loss(self, numbers: Tensor, wanted: Tensor, items: Sequence[TaskInput], softness: float) -> Tensor:
        if not self.multi_label:
            return super().distillation_loss(numbers, wanted, items, softness)
        return F.binary_cross_entropy_with_logits(numbers / softness, (wanted / softness).sigmoid()) * softness**2

    def postprocess(
        self, examples: Sequence[TextExample], items: Sequence[TaskInput], numbers: Sequence[Tensor]
    ) -> list[Prediction]:
        logits = torch.cat(list(numbers)).double()
        shares = logits.sigmoid() if self.multi_label else logits.softmax(-1)
        return [self._prediction(example, row) for example, row in zip(examples, shares.tolist(), strict=True)]

    def _prediction(self, example: TextExample, shares: list[float]) -> Prediction:
        label: str | list[str]
        if self.multi_label:
            label = [name for name, share in zip(self._labels, shares, strict=True) if share >= 0.5]
        else:
            label = self._labels[max(range(len(shares)), key=shares.__getitem__)]
        return {**self._said(example), "label": label, "probabilities": dict(zip(self._labels, shares, strict=True))}

    def _said(self, example: TextExample) -> dict[str, Any]:
        return example_text(example)

    def compute_metrics(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        truth, told = [example.label for example in examples], [prediction["label"] for prediction in predictions]
        if self.multi_label:
            names = [label if isinstance(label, tuple) else (str(label),) for label in truth]
            return multilabel_scores(names, told, self._labels)
        found = label_scores([str(label) for label in truth], told, positive=self.positive_label)
        # A file may lack some of many classes, but the score must not become another one by it.
        return found | ({"f1": found["macro_f1"]} if len(self._labels) > 2 else {})


class PairClassification(TextClassification):
    """One class a pair of texts."""

    name: ClassVar[str] = "pair"
    max_length: ClassVar[int] = 256


class Regression(Task[TextExample]):
    """A number for each text or pair."""

    name: ClassVar[str] = "regress"
    main_metric: ClassVar[str] = "spearman"
    transformers_head: ClassVar[str] = "SequenceClassification"
    pooled: ClassVar[bool] = True
    max_length: ClassVar[int] = 256

    def __init__(self, mean: float, deviation: float) -> None:
        self.mean, self.deviation = mean, deviation

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def labels(self) -> tuple[str, ...]:
        return ("value",)

    @classmethod
    def from_examples(cls, examples: Sequence[TextExample]) -> Regression:
        values = torch.tensor([_number(example.label) for example in examples], dtype=torch.double)
        deviation = values.std(unbiased=False).item() if len(values) else 0.0
        if not deviation:
            raise InputError("expected numbers that differ, and the training data has one number only")
        return cls(values.mean().item(), deviation)

    def to_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "deviation": self.deviation}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Regression:
        return cls(float(document["mean"]), float(document["deviation"]))

    def check(self, example: TextExample) -> None:
        if example.label is not None:
            _number(example.label)

    def preprocess(self, examples: Sequence[TextExample], rows: InputBuilder) -> list[TaskInput]:
        made = rows.sequences([(example.text, example.second) for example in examples])
        # Which comes first means nothing here, and a GPT reads in one direction: of a pair it gets both orders.
        both = [(one.second, one.text) for one in examples if rows.causal and one.second is not None]
        turned = iter(rows.sequences(both))
        items = []
        for place, (example, row) in enumerate(zip(examples, made, strict=True)):
            each = (row, next(turned)) if rows.causal and example.second is not None else (row,)
            items.append(TaskInput(each, place, None if example.label is None else _number(example.label)))
        return items

    def loss(self, numbers: Tensor, items: Sequence[TaskInput]) -> Tensor:
        values = torch.stack(
            [part.mean() for part in torch.split(numbers.squeeze(-1), [len(item.sequences) for item in items])]
        )
        targets = torch.tensor([item.target for item in items], device=numbers.device)
        return F.mse_loss(values, targets) / self.deviation**2

    def distillation_loss(self, numbers: Tensor, wanted: Tensor, items: Sequence[TaskInput], softness: float) -> Tensor:
        """A number has no softness."""
        return F.mse_loss(numbers, wanted) / self.deviation**2

    def postprocess(
        self, examples: Sequence[TextExample], items: Sequence[TaskInput], numbers: Sequence[Tensor]
    ) -> list[Prediction]:
        return [
            {
                **example_text(one),
                "value": value.double().mean().item(),
            }
            for one, value in zip(examples, numbers, strict=True)
        ]

    def compute_metrics(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        return value_scores(
            [_number(example.label) for example in examples], [prediction["value"] for prediction in predictions]
        )


def refuse_images(examples: Sequence[object]) -> None:
    if any(isinstance(example, ImageExample) for example in examples[:1]):
        raise InputError("this model reads text, and the input is pictures; use a model that was tuned on pictures")


def example_text(example: TextExample) -> dict[str, Any]:
    """What a prediction repeats of its example."""
    return {"text": example.text} if example.second is None else {"text_a": example.text, "text_b": example.second}


def _number(label: object) -> float:
    if not isinstance(label, float | int) or not math.isfinite(label):
        raise InputError(f"expected a finite number as label, got {label!r}")
    return float(label)
