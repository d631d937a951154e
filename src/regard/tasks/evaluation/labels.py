"""Evaluation of classes: one per example, or any number of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.tasks.evaluation.calibration import calibrate_classes, calibrate_event, calibration_remark, threshold_curve
from regard.tasks.evaluation.parts import (
    ClassScores,
    Confusion,
    ConfusionMatrix,
    ErrorCase,
    TaskEvaluation,
)
from regard.tasks.metrics import (
    Array,
    Counts,
    Values,
    confusion_matrix,
    confusion_scores,
    interval_of,
    membership_scores,
    precision_recall_f1,
    resampled_counts,
    resampled_sums,
)
from regard.wording import count_of

MAX_CLASSES = 200  # of a confusion matrix in the result
MAX_CONFUSIONS = 20


def evaluate_classes(
    truth: Counts,
    probabilities: Values,
    labels: Sequence[str],
    *,
    metrics: Mapping[str, float],
    positive: str | None = None,
    seed: int = 0,
) -> TaskEvaluation:
    """Evaluate one class per example: the ids of the true ones, and probabilities, (examples, classes).

    The predicted class is the first with the highest probability. `metrics` are those of the task; `weighted_f1` is
    added to them if `macro_f1` is among them. `positive` is the label of the threshold curve, for two classes.
    """
    predicted = probabilities.argmax(1)
    table = confusion_matrix(truth, predicted, len(labels))
    scores = confusion_scores(np.diag(table), table.sum(0), table.sum(1))
    occurring = np.flatnonzero(table.sum(0) + table.sum(1)).tolist()
    metrics = dict(metrics)
    if "macro_f1" in metrics:
        metrics["weighted_f1"] = float(scores["weighted_f1"])
    binary = len(labels) == 2 and positive is not None
    sampled = confusion_scores(*_sampled_counts(truth, predicted, len(labels), seed))
    sampled["f1"] = sampled["each_f1"][:, labels.index(str(positive))] if binary else sampled["macro_f1"]
    intervals = {name: interval_of(sampled[name]) for name in {"accuracy": 0.0, **metrics}}
    rows = np.arange(len(truth))
    confidence = probabilities[rows, predicted]
    confusions = _confusions(table, labels)
    if binary:
        of_positive = probabilities[:, labels.index(str(positive))]
        happened = truth == labels.index(str(positive))
        calibration = calibrate_event(happened, of_positive, of=f"the class {positive}")
        thresholds = [threshold_curve(str(positive), happened, of_positive)]
    else:
        calibration, thresholds = calibrate_classes(truth, probabilities), []
    wrong = np.flatnonzero(predicted != truth)
    wrong = wrong[np.argsort(-confidence[wrong], kind="stable")]
    errors = [
        ErrorCase(
            row,
            labels[truth[row]],
            labels[predicted[row]],
            float(confidence[row]),
            float(probabilities[row, truth[row]]),
        )
        for row in wrong.tolist()
    ]
    classes = class_scores(labels, np.diag(table), table.sum(0), table.sum(1))
    names = [labels[index] for index in occurring]
    return TaskEvaluation(
        metrics=metrics,
        intervals=intervals,
        positive=positive if binary else None,
        finding=(
            f"{metrics['accuracy']:.1f}% of {count_of(len(truth), 'example')} are classified correctly "
            f"(95% interval: {intervals['accuracy'][0]:.1f} to {intervals['accuracy'][1]:.1f})."
        ),
        remarks=[
            _majority_remark(table, labels),
            *([_confusion_remark(confusions, len(wrong))] if confusions else []),
            calibration_remark(100 * float(confidence.mean()), metrics["accuracy"]),
        ],
        classes=[classes[index] for index in occurring],
        confusion_matrix=ConfusionMatrix(names, names, table[np.ix_(occurring, occurring)].tolist())
        if len(names) <= MAX_CLASSES
        else None,
        confusions=confusions,
        calibration=calibration,
        thresholds=thresholds,
        errors=errors,
    )


def class_scores(labels: Sequence[str], correct: Array, predicted: Array, true: Array) -> list[ClassScores]:
    """The scores of each label from its counts, (labels,)."""
    scores = (values.tolist() for values in (*precision_recall_f1(correct, predicted, true), true, predicted))
    return [ClassScores(*row) for row in zip(labels, *scores, strict=True)]


def _sampled_counts(truth: Counts, predicted: Counts, size: int, seed: int) -> tuple[Values, Values, Values]:
    """Correct, predicted and true examples of each class in each sample of a bootstrap, (samples, classes)."""
    pairs, groups = np.unique(np.stack([truth, predicted], 1), axis=0, return_inverse=True)
    counts = resampled_counts(groups.reshape(-1), seed=seed)
    true, guessed = (np.eye(size)[pairs[:, side]] for side in (0, 1))
    return counts @ (true * guessed), counts @ guessed, counts @ true


def _confusions(table: Counts, labels: Sequence[str]) -> list[Confusion]:
    """The labels that were taken for others, most frequent first."""
    wrong = table.copy()
    np.fill_diagonal(wrong, 0)
    rows, columns = np.nonzero(wrong)
    order = np.argsort(-wrong[rows, columns], kind="stable")[:MAX_CONFUSIONS]
    pairs = zip(rows[order].tolist(), columns[order].tolist(), strict=True)
    return [Confusion(labels[row], labels[column], int(wrong[row, column])) for row, column in pairs]


def _majority_remark(table: Counts, labels: Sequence[str]) -> str:
    support = table.sum(1)
    most = int(support.argmax())
    return f"Always answering {labels[most]!r} would be right in {100 * support[most] / support.sum():.1f}%."


def _confusion_remark(confusions: Sequence[Confusion], errors: int) -> str:
    first = confusions[0]
    return (
        f"The most frequent error: {first.label!r} taken for {first.predicted!r}, {first.count:,} of "
        f"{count_of(errors, 'error')}."
    )


def evaluate_label_sets(
    truth: NDArray[np.bool_], probabilities: Values, labels: Sequence[str], *, metrics: Mapping[str, float], seed: int
) -> TaskEvaluation:
    """Evaluate any number of labels per example: which ones are true, and their probabilities, (examples, labels).

    A label is predicted if its probability is at least one half.
    """
    predicted = probabilities >= 0.5
    equal = (truth == predicted).all(1)
    both = truth & predicted
    sums = resampled_sums(np.concatenate([equal[:, None], both, predicted, truth], 1), seed=seed)
    sampled = membership_scores(sums[:, 0] / len(truth), *np.split(sums[:, 1:], 3, axis=1))
    intervals = {name: interval_of(values) for name, values in sampled.items()}
    # The confidence in an error is that in the label that is most wrong.
    wrongness = np.where(truth == predicted, 0.0, np.where(predicted, probabilities, 1 - probabilities))
    worst = wrongness.max(1)
    rows = np.flatnonzero(~equal)
    rows = rows[np.argsort(-worst[rows], kind="stable")]
    errors = []
    for row in rows.tolist():
        column = int(wrongness[row].argmax())
        errors.append(
            ErrorCase(
                row,
                [labels[index] for index in np.flatnonzero(truth[row]).tolist()],
                [labels[index] for index in np.flatnonzero(predicted[row]).tolist()],
                float(worst[row]),
                float(1 - worst[row]),
                kind=f"{'wrongly' if predicted[row, column] else 'not'} {labels[column]}",
            )
        )
    missed, added = int((truth & ~predicted).sum()), int((predicted & ~truth).sum())
    return TaskEvaluation(
        metrics=dict(metrics),
        intervals={name: intervals[name] for name in metrics if name in intervals},
        finding=(
            f"All labels are correct for {metrics['accuracy']:.1f}% of {count_of(len(truth), 'example')} (95% "
            f"interval: {intervals['accuracy'][0]:.1f} to {intervals['accuracy'][1]:.1f})."
        ),
        remarks=[f"{count_of(missed, 'label')} were missed, and {added:,} were predicted wrongly."],
        classes=class_scores(labels, both.sum(0), predicted.sum(0), truth.sum(0)),
        calibration=calibrate_event(truth.reshape(-1), probabilities.reshape(-1), of="all labels"),
        thresholds=[threshold_curve(label, truth[:, i], probabilities[:, i]) for i, label in enumerate(labels)],
        errors=errors,
    )
