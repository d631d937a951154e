"""Calibration: whether predictions with a probability of 80% are right in 80% of the cases."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.tasks.evaluation.parts import Calibration, ReliabilityBin
from regard.tasks.metrics import Values

BINS = 10
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
