"""Scores of a label at every threshold of its probability, ROC AUC and average precision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.tasks.evaluation.parts import ThresholdCurve
from regard.tasks.metrics import Counts, Values, precision_recall_f1

MAX_POINTS = 200  # of a curve


def threshold_curve(label: str, truth: NDArray[np.bool_], probability: Values) -> ThresholdCurve:
    """The curve of a label: `truth` says which examples have it. Equal probabilities share a threshold."""
    order = np.argsort(-probability, kind="stable")
    descending = probability[order]
    last = np.append(np.flatnonzero(np.diff(descending)), len(order) - 1)  # of equal probabilities
    true_positives = np.cumsum(truth[order])[last]
    false_positives = 1 + last - true_positives
    positives = int(truth.sum())
    precision, recall, f1 = precision_recall_f1(
        true_positives, true_positives + false_positives, np.full(len(last), positives)
    )
    best = int(f1.argmax())
    points = sample_points(len(last), best)
    return ThresholdCurve(
        label=label,
        n=len(truth),
        positives=positives,
        thresholds=descending[last][points].tolist(),
        true_positives=true_positives[points].tolist(),
        false_positives=false_positives[points].tolist(),
        precision=precision[points].tolist(),
        recall=recall[points].tolist(),
        f1=f1[points].tolist(),
        best_threshold=float(descending[last][best]),
        best_f1=float(f1[best]),
        roc_auc=_roc_auc(true_positives, false_positives),
        average_precision=float((np.diff(recall, prepend=0) * precision).sum() / 100) if positives else None,
    )


def sample_points(count: int, *kept: int) -> NDArray[np.int64]:
    """Up to MAX_POINTS increasing indices below `count`, evenly spaced, the first, the last and `kept` among them."""
    spaced = np.linspace(0, count - 1, min(count, MAX_POINTS - len(kept))).round().astype(np.int64)
    return np.unique(np.append(spaced, kept).astype(np.int64))


def _roc_auc(true_positives: Counts, false_positives: Counts) -> float | None:
    """The area under the curve of true positives against false ones, in percent."""
    positives, negatives = int(true_positives[-1]), int(false_positives[-1])
    if not positives or not negatives:
        return None
    heights = (true_positives + np.append(0, true_positives[:-1])) / 2
    return 100 * float((np.diff(false_positives, prepend=0) * heights).sum() / positives / negatives)
