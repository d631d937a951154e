"""What probabilities are worth: whether 80% of those of 80% are right, and the scores at every threshold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.tasks.evaluation.parts import Calibration, ReliabilityBin, ThresholdCurve
from regard.tasks.metrics import Counts, Values, precision_recall_f1

BINS = 10
MAX_POINTS = 200  # of a curve
CALIBRATED = 2.0  # points between mean confidence and accuracy that are not worth a remark


def calibrate_event(happened: NDArray[np.bool_], probability: Values, *, of: str) -> Calibration:
    """Calibration of the probabilities of an event, as of the positive class of two."""
    squared = float(((probability - happened) ** 2).mean())
    certain = _log_loss(np.where(happened, probability, 1 - probability))
    return _calibration(happened, probability, of=of, brier=squared, log_loss=certain)


def calibrate_classes(truth: NDArray[np.int64], probabilities: Values) -> Calibration:
    """Calibration of the probabilities, (examples, classes), of the predicted classes."""
    predicted = probabilities.argmax(1)
    rows = np.arange(len(truth))
    expected = np.zeros_like(probabilities)
    expected[rows, truth] = 1
    brier = float(((probabilities - expected) ** 2).sum(1).mean())
    of = "the predicted class"
    log_loss = _log_loss(probabilities[rows, truth])
    return _calibration(predicted == truth, probabilities[rows, predicted], of=of, brier=brier, log_loss=log_loss)


def _calibration(
    happened: NDArray[np.bool_], probability: Values, *, of: str, brier: float, log_loss: float
) -> Calibration:
    edges = np.linspace(0, 1, BINS + 1)
    ids = np.searchsorted(edges[1:-1], probability)
    counts = np.bincount(ids, minlength=BINS)
    confidence = np.bincount(ids, probability, minlength=BINS)
    right = np.bincount(ids, happened, minlength=BINS)
    bins = [
        ReliabilityBin(
            float(edges[number]),
            float(edges[number + 1]),
            int(count),
            float(confidence[number] / count) if count else None,
            float(right[number] / count) if count else None,
        )
        for number, count in enumerate(counts)
    ]
    return Calibration(
        of=of,
        bins=bins,
        ece=100 * float(np.abs(confidence - right).sum() / len(happened)),
        brier=brier,
        log_loss=log_loss,
        confidence=100 * float(probability.mean()),
        accuracy=100 * float(happened.mean()),
    )


def _log_loss(probability_of_truth: Values) -> float:
    smallest = np.finfo(np.float64).eps
    return float(-np.log(np.clip(probability_of_truth, smallest, 1 - smallest)).mean())


def calibration_remark(confidence: float, accuracy: float) -> str:
    """A sentence on the mean confidence of predictions and their accuracy, both in percent."""
    gap = confidence - accuracy
    measured = f"the mean confidence is {confidence:.1f}%, and {accuracy:.1f}% are right"
    if abs(gap) < CALIBRATED:
        return f"The probabilities can be taken at face value: {measured}."
    word = "overconfident" if gap > 0 else "underconfident"
    return f"The model is {word}: {measured}."


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
