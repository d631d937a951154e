"""Tasks with one answer a text or pair: a class, several classes, or a number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.examples import Picture, Text
from regard.errors import InputError
from regard.tasks.base import Item, Named, Prediction, Task, labels_in
from regard.tasks.metrics import label_scores, multilabel_scores, value_scores
from regard.tasks.metrics.labels import positive_label
from regard.tasks.rows import Rows

__all__ = ["Classify", "Pair", "Regress"]


class Classify(Named[Text]):
    """One class a text, or any number of them where labels are tuples."""

    name: ClassVar[str] = "classify"
    main: ClassVar[str] = "accuracy"
    kind: ClassVar[str] = "SequenceClassification"
    pooled: ClassVar[bool] = True
    length: ClassVar[int] = 128

    def __init__(self, labels: Sequence[str], *, several: bool = False, positive: str | None = None) -> None:
        """`positive`: which of two labels F1 is about."""
        super().__init__(labels)
        self.several, self.positive = several, positive

    @classmethod
    def learn(cls, examples: Sequence[Text]) -> Classify:
        found = [example.label for example in examples if example.label is not None]
        several = any(isinstance(label, tuple) for label in found)
        counts = Counter(name for label in found for name in (label if isinstance(label, tuple) else (str(label),)))
        if len(counts) < (1 if several else 2):
            only = f"only {next(iter(counts))!r}" if counts else "none"
            raise InputError(f"expected at least two classes to tell apart, and the training data has {only}")
        # Decided here and once: judged by the file that is scored, F1 could be of another class in each.
        two = len(counts) == 2 and not several
        return cls(sorted(counts), several=several, positive=positive_label([*counts.elements()]) if two else None)

    def document(self) -> dict[str, Any]:
        return {"labels": list(self._labels), "several": self.several, "positive": self.positive}

    @classmethod
    def restore(cls, document: Mapping[str, Any]) -> Classify:
        return cls(labels_in(document), several=bool(document["several"]), positive=document.get("positive"))

    def check(self, example: Text) -> None:
        self._target(example.label)

    def items(self, examples: Sequence[Text], rows: Rows) -> list[Item]:
        refuse_pictures(examples)
        made = rows.whole([(example.text, example.second) for example in examples])
        return [
            Item((row,), place, self._target(example.label))
            for place, (row, example) in enumerate(zip(made, examples, strict=True))
        ]

    def _target(self, label: object) -> Any:
        if label is None:
            return None
        names = label if isinstance(label, tuple) else (label,)
        if isinstance(label, tuple) and not self.several:
            raise InputError(f"the label is the list {list(label)!r}, and this task has one label a text")
        places = [self._place(name) for name in names]
        return [float(place in places) for place in range(self.outputs)] if self.several else places[0]

    def loss(self, numbers: Tensor, items: Sequence[Item]) -> Tensor:
        targets = torch.tensor([item.target for item in items], device=numbers.device)
        if self.several:
            return F.binary_cross_entropy_with_logits(numbers, targets)
        return F.cross_entropy(numbers, targets)

    def soft_loss(self, numbers: Tensor, wanted: Tensor, items: Sequence[Item], softness: float) -> Tensor:
        if not self.several:
            return super().soft_loss(numbers, wanted, items, softness)
        return F.binary_cross_entropy_with_logits(numbers / softness, (wanted / softness).sigmoid()) * softness**2

    def predictions(
        self, examples: Sequence[Text], items: Sequence[Item], numbers: Sequence[Tensor]
    ) -> list[Prediction]:
        logits = torch.cat(list(numbers)).double()
        shares = logits.sigmoid() if self.several else logits.softmax(-1)
        return [self._prediction(example, row) for example, row in zip(examples, shares.tolist(), strict=True)]

    def _prediction(self, example: Text, shares: list[float]) -> Prediction:
        label: str | list[str]
        if self.several:
            label = [name for name, share in zip(self._labels, shares, strict=True) if share >= 0.5]
        else:
            label = self._labels[max(range(len(shares)), key=shares.__getitem__)]
        return {**self._said(example), "label": label, "probabilities": dict(zip(self._labels, shares, strict=True))}

    def _said(self, example: Text) -> dict[str, Any]:
        return said(example)

    def scores(self, examples: Sequence[Text], predictions: Sequence[Prediction]) -> dict[str, float]:
        truth, told = [example.label for example in examples], [prediction["label"] for prediction in predictions]
        if self.several:
            names = [label if isinstance(label, tuple) else (str(label),) for label in truth]
            return multilabel_scores(names, told, self._labels)
        found = label_scores([str(label) for label in truth], told, positive=self.positive)
        # A file may lack some of many classes, but the score must not become another one by it.
        return found | ({"f1": found["macro_f1"]} if len(self._labels) > 2 else {})


class Pair(Classify):
    """One class a pair of texts."""

    name: ClassVar[str] = "pair"
    length: ClassVar[int] = 256


class Regress(Task[Text]):
    """A number for each text or pair."""

    name: ClassVar[str] = "regress"
    main: ClassVar[str] = "spearman"
    kind: ClassVar[str] = "SequenceClassification"
    pooled: ClassVar[bool] = True
    length: ClassVar[int] = 256

    def __init__(self, mean: float, deviation: float) -> None:
        self.mean, self.deviation = mean, deviation

    @property
    def outputs(self) -> int:
        return 1

    @property
    def labels(self) -> tuple[str, ...]:
        return ("value",)

    @classmethod
    def learn(cls, examples: Sequence[Text]) -> Regress:
        values = torch.tensor([_number(example.label) for example in examples], dtype=torch.double)
        deviation = values.std(unbiased=False).item() if len(values) else 0.0
        if not deviation:
            raise InputError("expected numbers that differ, and the training data has one number only")
        return cls(values.mean().item(), deviation)

    def document(self) -> dict[str, Any]:
        return {"mean": self.mean, "deviation": self.deviation}

    @classmethod
    def restore(cls, document: Mapping[str, Any]) -> Regress:
        return cls(float(document["mean"]), float(document["deviation"]))

    def check(self, example: Text) -> None:
        if example.label is not None:
            _number(example.label)

    def items(self, examples: Sequence[Text], rows: Rows) -> list[Item]:
        made = rows.whole([(example.text, example.second) for example in examples])
        # Which comes first means nothing here, and a GPT reads in one direction: of a pair it gets both orders.
        both = [(one.second, one.text) for one in examples if rows.causal and one.second is not None]
        turned = iter(rows.whole(both))
        items = []
        for place, (example, row) in enumerate(zip(examples, made, strict=True)):
            each = (row, next(turned)) if rows.causal and example.second is not None else (row,)
            items.append(Item(each, place, None if example.label is None else _number(example.label)))
        return items

    def loss(self, numbers: Tensor, items: Sequence[Item]) -> Tensor:
        values = torch.stack(
            [part.mean() for part in torch.split(numbers.squeeze(-1), [len(item.rows) for item in items])]
        )
        targets = torch.tensor([item.target for item in items], device=numbers.device)
        return F.mse_loss(values, targets) / self.deviation**2

    def soft_loss(self, numbers: Tensor, wanted: Tensor, items: Sequence[Item], softness: float) -> Tensor:
        """A number has no softness."""
        return F.mse_loss(numbers, wanted) / self.deviation**2

    def predictions(
        self, examples: Sequence[Text], items: Sequence[Item], numbers: Sequence[Tensor]
    ) -> list[Prediction]:
        return [
            {
                **said(one),
                "value": value.double().mean().item(),
            }
            for one, value in zip(examples, numbers, strict=True)
        ]

    def scores(self, examples: Sequence[Text], predictions: Sequence[Prediction]) -> dict[str, float]:
        return value_scores(
            [_number(example.label) for example in examples], [prediction["value"] for prediction in predictions]
        )


def refuse_pictures(examples: Sequence[object]) -> None:
    if any(isinstance(example, Picture) for example in examples[:1]):
        raise InputError("this model reads text, and the input is pictures; use a model that was tuned on pictures")


def said(example: Text) -> dict[str, Any]:
    """What a prediction repeats of its example."""
    return {"text": example.text} if example.second is None else {"text_a": example.text, "text_b": example.second}


def _number(label: object) -> float:
    if not isinstance(label, float | int) or not math.isfinite(label):
        raise InputError(f"expected a finite number as label, got {label!r}")
    return float(label)
