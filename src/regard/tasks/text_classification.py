"""Text classification: one class per text or pair of texts, or any number of classes (multi-label)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.examples import ImageExample, TextExample, example_values
from regard.data.readers import read_text_examples
from regard.errors import InputError
from regard.tasks.evaluation.labels import evaluate_classes, evaluate_label_sets
from regard.tasks.evaluation.parts import TaskEvaluation
from regard.tasks.inputs import InputBuilder
from regard.tasks.metrics import choose_positive_label, label_scores, multilabel_scores
from regard.tasks.task import ColumnKind, ExplainedOutput, LabelTask, Prediction, ProblemType, TaskInput, read_labels

_LABEL_COLUMNS: dict[str, ColumnKind] = {"label": "string", "probability": "number"}


class TextClassification(LabelTask[TextExample]):
    """One class per text, or any number of them (`multi_label`). F1 of two classes is that of `positive_label`."""

    name: ClassVar[str] = "classify"
    purpose: ClassVar[str] = "Classifies texts"
    about: ClassVar[str] = """One class per text, or several: sentiment, spam, topics. Or one class per image.

    Reads TSV, CSV, JSONL and Parquet: a text and its label, or several columns of 0 and 1. Images are a folder
    with one folder per class, or IDX files as of MNIST; a new Vision Transformer is trained on them."""
    reader = staticmethod(partial(read_text_examples, task="classify"))
    # AdamW with adversarial training ends in a single class on short sentences (CoLA); Muon does not.
    training_defaults: ClassVar[Mapping[str, object]] = {"optimizer": "muon", "base_learning_rate": 3e-4}
    data_format: ClassVar[str] = "TSV or CSV with a text and its label"
    main_metric: ClassVar[str] = "accuracy"
    transformers_head: ClassVar[str] = "SequenceClassification"
    pooled: ClassVar[bool] = True
    max_length: ClassVar[int] = 128
    answer_keys: ClassVar[tuple[str, ...]] = ("label", "probabilities")
    is_classification: ClassVar[bool] = True

    def __init__(self, labels: Sequence[str], *, multi_label: bool = False, positive_label: str | None = None) -> None:
        super().__init__(labels)
        self.multi_label, self.positive_label = multi_label, positive_label

    def with_labels(self, labels: Sequence[str]) -> TextClassification:
        """The task with more labels, or the same in another order."""
        positive = self.positive_label if len(labels) == 2 else None
        return type(self)(labels, multi_label=self.multi_label, positive_label=positive)

    @property
    def problem_type(self) -> ProblemType:
        return "multi_label_classification" if self.multi_label else "single_label_classification"

    @classmethod
    def example(cls, text: str, second: str | None = None) -> TextExample:
        if second is not None:
            raise InputError("classify reads one text, and two were given; leave the second out")
        return TextExample(text)

    @classmethod
    def texts(cls, example: TextExample) -> tuple[str, str | None]:
        return example.text, example.text_pair

    @classmethod
    def from_examples(cls, examples: Sequence[TextExample]) -> TextClassification:
        labels = [example.label for example in examples if example.label is not None]
        multi_label = any(isinstance(label, tuple) for label in labels)
        counts = Counter(name for label in labels for name in (label if isinstance(label, tuple) else (str(label),)))
        if len(counts) < (1 if multi_label else 2):
            only = f"only {next(iter(counts))!r}" if counts else "none"
            raise InputError(f"expected at least two classes, and the training data has {only}")
        # Chosen once, on the training data, so that F1 refers to the same class in every evaluated file.
        binary = len(counts) == 2 and not multi_label
        positive_label = choose_positive_label([*counts.elements()]) if binary else None
        return cls(sorted(counts), multi_label=multi_label, positive_label=positive_label)

    def to_dict(self) -> dict[str, Any]:
        return {"labels": list(self._labels), "several": self.multi_label, "positive": self.positive_label}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> TextClassification:
        labels = read_labels(document)
        return cls(labels, multi_label=bool(document["several"]), positive_label=document.get("positive"))

    def check(self, example: TextExample) -> None:
        self._target(example.label)

    def preprocess(self, examples: Sequence[TextExample], builder: InputBuilder) -> list[TaskInput]:
        if examples and isinstance(examples[0], ImageExample):
            raise InputError("this model reads text, and the input is images; use a model fine-tuned on images")
        inputs = builder.inputs([(example.text, example.text_pair) for example in examples])
        return [
            TaskInput(sequences, index, self._target(example.label))
            for index, (sequences, example) in enumerate(zip(inputs, examples, strict=True))
        ]

    def _target(self, label: object) -> Any:
        if label is None:
            return None
        names = label if isinstance(label, tuple) else (label,)
        if isinstance(label, tuple) and not self.multi_label:
            raise InputError(f"the label is the list {list(label)!r}, and this task has one label per text")
        ids = [self._label_id(name) for name in names]
        return [float(index in ids) for index in range(self.num_outputs)] if self.multi_label else ids[0]

    def target_tensor(self, inputs: Sequence[TaskInput]) -> Tensor:
        return torch.tensor([item.target for item in inputs])

    def distillation_loss(
        self, logits: Tensor, teacher_logits: Tensor, inputs: Sequence[TaskInput], temperature: float
    ) -> Tensor:
        if not self.multi_label:
            return super().distillation_loss(logits, teacher_logits, inputs, temperature)
        targets = (teacher_logits / temperature).sigmoid()
        return F.binary_cross_entropy_with_logits(logits / temperature, targets) * temperature**2

    def postprocess(
        self, examples: Sequence[TextExample], inputs: Sequence[TaskInput], logits: Sequence[Tensor]
    ) -> list[Prediction]:
        probabilities = self.scores(torch.cat(list(logits)).double())
        return [self._prediction(*each) for each in zip(examples, probabilities.tolist(), strict=True)]

    def scores(self, logits: Tensor) -> Tensor:
        return logits.sigmoid() if self.multi_label else logits.softmax(-1)

    def _prediction(self, example: TextExample, probabilities: list[float]) -> Prediction:
        by_label = dict(zip(self._labels, probabilities, strict=True))
        label: str | list[str]
        if self.multi_label:
            label = [name for name, probability in by_label.items() if probability >= 0.5]
        else:
            label = max(by_label, key=by_label.__getitem__)
        return {**example_values(example), "label": label, "probabilities": by_label}

    @property
    def prediction_columns(self) -> dict[str, ColumnKind]:
        """The label with its probability (the labels, if several may hold), and `p_LABEL` for each label."""
        first: dict[str, ColumnKind] = {"labels": "strings"} if self.multi_label else _LABEL_COLUMNS
        return first | {f"p_{label}": "number" for label in self._labels}

    def to_columns(self, prediction: Prediction) -> dict[str, Any]:
        label, probabilities = prediction["label"], prediction["probabilities"]
        first = {"labels": label} if self.multi_label else {"label": label, "probability": probabilities[label]}
        return first | {f"p_{name}": probability for name, probability in probabilities.items()}

    def explained_outputs(
        self, example: TextExample, prediction: Prediction, inputs: TaskInput, tokens: Sequence[str]
    ) -> list[ExplainedOutput]:
        """Every predicted label; if there is none, the likeliest."""
        predicted, probabilities = prediction["label"], prediction["probabilities"]
        order = probabilities.__getitem__
        names = [predicted] if isinstance(predicted, str) else sorted(predicted, key=order, reverse=True)
        return [ExplainedOutput(name, 0, self._label_id(name)) for name in names or [max(probabilities, key=order)]]

    def compute_metrics(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        truth = [example.label for example in examples]
        predicted = [prediction["label"] for prediction in predictions]
        if self.multi_label:
            names = [label if isinstance(label, tuple) else (str(label),) for label in truth]
            return multilabel_scores(names, predicted, self._labels)
        scores = label_scores([str(label) for label in truth], predicted, positive=self.positive_label)
        # With more than two classes, "f1" is macro F1 even if only two of them occur in the file.
        return scores | ({"f1": scores["macro_f1"]} if len(self._labels) > 2 else {})

    def evaluate(
        self, examples: Sequence[TextExample], predictions: Sequence[Prediction], *, seed: int = 0
    ) -> TaskEvaluation:
        metrics = self.compute_metrics(examples, predictions)
        probabilities = np.array([list(prediction["probabilities"].values()) for prediction in predictions])
        targets = np.array([self._target(example.label) for example in examples])
        if self.multi_label:
            return evaluate_label_sets(targets > 0, probabilities, self._labels, metrics=metrics, seed=seed)
        positive = self.positive_label
        if positive is None and len(self._labels) == 2:
            positive = choose_positive_label([str(example.label) for example in examples], self._labels)
        return evaluate_classes(targets, probabilities, self._labels, metrics=metrics, positive=positive, seed=seed)


class PairClassification(TextClassification):
    """One class per pair of texts."""

    name: ClassVar[str] = "pair"
    purpose: ClassVar[str] = "Classifies pairs of texts"
    about: ClassVar[str] = """One class per pair of texts: entailment, paraphrase.

    Reads TSV, CSV, JSONL and Parquet: two texts and their label."""
    reader = staticmethod(partial(read_text_examples, task="pair"))
    training_defaults: ClassVar[Mapping[str, object]] = {
        "num_epochs": 5,
        "base_learning_rate": 1e-4,
        "adversarial_epsilon": 0.5,
    }
    data_format: ClassVar[str] = "TSV or CSV with two texts and their label"
    input_hint: ClassVar[str] = 'This model compares two texts: give both, "first" "second", or a file of pairs.'
    max_length: ClassVar[int] = 256
    num_texts: ClassVar[int | None] = 2

    @classmethod
    def example(cls, text: str, second: str | None = None) -> TextExample:
        if second is None:
            raise InputError("pair reads two texts; give the second text too")
        return TextExample(text, second)
