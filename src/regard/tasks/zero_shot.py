"""Zero-shot classification: one of any labels for a text, by a model that was not trained on them.

`EntailmentLabels` is the task of an NLI model, with the scores of transformers' zero-shot-classification pipeline: the
text is the premise, and a template makes a hypothesis of each label. `SimilarityLabels` is that of an embedding model,
whose head has the vectors of the labels: its scores are cosines, which are no probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.data.examples import TextExample, example_values
from regard.errors import InputError, suggest
from regard.tasks.evaluation.labels import evaluate_classes, evaluate_label_sets
from regard.tasks.evaluation.parts import TaskEvaluation
from regard.tasks.inputs import InputBuilder
from regard.tasks.metrics import label_scores, multilabel_scores
from regard.tasks.task import ColumnKind, Prediction, TaskInput
from regard.tasks.text_classification import TextClassification

NONE = "none"  # the label of a text that no label fits
METRICS = ("accuracy", "macro_f1")


class ZeroShotLabels(TextClassification):
    """One label per text, or any number (`multi_label`). With a `threshold`, a text gets the label "none" unless its
    `fit`, the highest of a label, is above it; predictions then have it, too."""

    score_name: ClassVar[str]  # of the scores in a prediction
    column: ClassVar[str]  # of the score of the predicted label, and what the columns of all labels begin with
    prefix: ClassVar[str]

    def __init__(self, labels: Sequence[str], *, multi_label: bool = False, threshold: float | None = None) -> None:
        super().__init__([*labels, NONE] if threshold is not None else labels, multi_label=multi_label)
        self.candidates, self.threshold = tuple(labels), threshold

    def _prediction_of(self, example: TextExample, scores: Sequence[float], fit: float) -> Prediction:
        """`fit` is the highest fit of a label."""
        by_label = dict(zip(self.candidates, scores, strict=True))
        label: str | list[str] = max(by_label, key=by_label.__getitem__)
        if self.multi_label:
            label = [name for name, score in by_label.items() if score >= 0.5]
        elif self.threshold is not None and fit <= self.threshold:
            label = NONE
        compared = {} if self.threshold is None else {"fit": fit}
        return {**example_values(example), "label": label, **compared, self.score_name: by_label}

    @property
    def answer_keys(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("label", self.score_name) if self.threshold is None else ("label", "fit", self.score_name)

    @property
    def prediction_columns(self) -> dict[str, ColumnKind]:
        """The label with its score (none for "none"; only the labels, if several may hold), the fit if there is a
        threshold, and the score of each label."""
        first: dict[str, ColumnKind] = {"labels": "strings"}
        if not self.multi_label:
            first = {"label": "string", self.column: "number"}
        if self.threshold is not None:
            first["fit"] = "number"
        return first | {f"{self.prefix}_{label}": "number" for label in self.candidates}

    def to_columns(self, prediction: Prediction) -> dict[str, Any]:
        label, scores = prediction["label"], prediction[self.score_name]
        first = {"labels": label} if self.multi_label else {"label": label, self.column: scores.get(label)}
        if self.threshold is not None:
            first["fit"] = prediction["fit"]
        return first | {f"{self.prefix}_{name}": score for name, score in scores.items()}

    def compute_metrics(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        predicted = [prediction["label"] for prediction in predictions]
        if self.multi_label:
            truth = [one.label if isinstance(one.label, tuple) else (str(one.label),) for one in examples]
            return multilabel_scores(truth, predicted, self._labels)
        scores = label_scores([str(example.label) for example in examples], predicted, positive=self._labels[0])
        return {name: scores[name] for name in METRICS}

    def evaluate(
        self, examples: Sequence[TextExample], predictions: Sequence[Prediction], *, seed: int = 0
    ) -> TaskEvaluation:
        """Without what is said of probabilities, unless the scores are some."""
        metrics = self.compute_metrics(examples, predictions)
        targets = np.array([self._target(example.label) for example in examples])
        scores = np.array([list(prediction[self.score_name].values()) for prediction in predictions])
        if self.multi_label:
            return evaluate_label_sets(targets > 0, scores, self._labels, metrics=metrics, seed=seed)
        if self.threshold is not None:  # a column for "none" that is the largest where it is predicted
            is_none = np.array([prediction["label"] == NONE for prediction in predictions])
            scores = np.column_stack([scores, np.where(is_none, scores.max(1) + 1, scores.min(1) - 1)])
        found = evaluate_classes(targets, scores, self._labels, metrics=metrics, seed=seed)
        if self.threshold is None and self.score_name == "probabilities":
            return found
        errors = [replace(error, confidence=None, probability=None) for error in found.errors]
        return replace(found, calibration=None, remarks=found.remarks[:-1], errors=errors)

    def _label_id(self, label: object) -> int:
        if label not in self._label_ids:
            hint = f"; {suggest(str(label), self._labels)}"
            raise InputError(f"the label {label!r} is none of the {len(self._labels)} labels{hint}")
        return self._label_ids[str(label)]


class EntailmentLabels(ZeroShotLabels):
    """By a model of `classes`, one of which begins with "entail". The class "contradiction" is the first one, or the
    last one if "entailment" is first, as in transformers."""

    score_name: ClassVar[str] = "probabilities"
    column: ClassVar[str] = "probability"
    prefix: ClassVar[str] = "p"

    def __init__(
        self,
        labels: Sequence[str],
        *,
        template: str,
        classes: Sequence[str],
        multi_label: bool = False,
        threshold: float | None = None,
    ) -> None:
        super().__init__(labels, multi_label=multi_label, threshold=threshold)
        self.hypotheses = hypotheses_of(labels, template)
        self.entailment = entailment_of(classes)
        self.contradiction = len(classes) - 1 if self.entailment == 0 else 0
        self._check_contradiction([str(name) for name in classes], alone=multi_label or len(labels) == 1)

    def _check_contradiction(self, classes: Sequence[str], *, alone: bool) -> None:
        stated = [index for index, name in enumerate(classes) if name.lower().startswith("contradict")]
        if (alone or self.threshold is not None) and stated not in ([], [self.contradiction]):
            raise InputError(
                f"the model's classes are {', '.join(classes)}: transformers takes {classes[self.contradiction]!r} for "
                "contradiction, so several labels, a single one and --none have no right scores; leave them out"
            )

    def preprocess(self, examples: Sequence[TextExample], builder: InputBuilder) -> list[TaskInput]:
        pairs = [(example.text, hypothesis) for example in examples for hypothesis in self.hypotheses]
        try:
            sequences = builder.sequences(pairs, keep_second=True)
        except InputError as error:
            raise InputError(f"a label with its template is too long: {error}") from None
        count = len(self.hypotheses)
        return [
            TaskInput(tuple(sequences[index * count : (index + 1) * count]), index, self._target(example.label))
            for index, example in enumerate(examples)
        ]

    def postprocess(
        self, examples: Sequence[TextExample], inputs: Sequence[TaskInput], logits: Sequence[Tensor]
    ) -> list[Prediction]:
        found = []
        for example, rows in zip(examples, logits, strict=True):
            each = rows.double()[:, [self.contradiction, self.entailment]].softmax(-1)[:, 1]
            alone = self.multi_label or len(self.hypotheses) == 1
            scores = each if alone else rows.double()[:, self.entailment].softmax(-1)
            found.append(self._prediction_of(example, scores.tolist(), each.max().item()))
        return found


class SimilarityLabels(ZeroShotLabels):
    """By the cosine of the vectors of a text and of the labels: the outputs of the model."""

    score_name: ClassVar[str] = "cosines"
    column: ClassVar[str] = "cosine"
    prefix: ClassVar[str] = "cosine"

    def postprocess(
        self, examples: Sequence[TextExample], inputs: Sequence[TaskInput], logits: Sequence[Tensor]
    ) -> list[Prediction]:
        rows = torch.cat(list(logits)).double().tolist()
        return [self._prediction_of(example, row, max(row)) for example, row in zip(examples, rows, strict=True)]


def hypotheses_of(labels: Sequence[str], template: str) -> list[str]:
    """The template with each label in place of its {}."""
    try:
        found = [template.format(label) for label in labels]
    except (IndexError, KeyError, ValueError, AttributeError) as error:
        raise InputError(f"the template {template!r} is no format for a label: {error!r}; write {{}} for it") from None
    if found and found[0] == template:
        raise InputError(f"the template {template!r} has no place for a label; write {{}} for it")
    return found


def entailment_of(classes: Sequence[str]) -> int:
    """The index of the class "entailment" of an NLI model."""
    for index, name in enumerate(classes):
        if str(name).lower().startswith("entail"):
            return index
    raise InputError(
        f"the model's classes are {', '.join(map(str, classes))}; zero-shot classification needs one that begins with "
        "'entail': give an NLI model, or name that class in id2label and label2id of its config.json"
    )


def without_labels(names: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Names that share no word with a label."""
    words = {word for label in labels for word in label.casefold().split()}
    return [name for name in names if not words & {*name.casefold().split()}]
