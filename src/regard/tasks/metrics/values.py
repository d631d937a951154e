"""How well numbers agree: correlation of values and of ranks. In percent; of values that are all equal it is 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError
from regard.tasks.metrics.pairs import check_pairs

__all__ = ["value_scores"]

Values = NDArray[np.float64]


def value_scores(truth: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """`pearson` and `spearman` (equal values share the mean of their ranks)."""
    check_pairs(truth, predicted)
    right, found = _finite(truth, "true"), _finite(predicted, "predicted")
    return {
        "pearson": 100 * _correlation(right, found),
        "spearman": 100 * _correlation(_ranks(right), _ranks(found)),
    }


def _correlation(x: Values, y: Values) -> float:
    if x.min() == x.max() or y.min() == y.max():
        return 0.0
    x, y = _centred(x), _centred(y)
    return float(np.clip(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)), -1, 1))


def _centred(values: Values) -> Values:
    """Around 0 and at most 1, so that no square can overflow or vanish."""
    values = values / np.abs(values).max()
    values = values - values.mean()
    scaled: Values = values / np.abs(values).max()
    return scaled


def _ranks(values: Values) -> Values:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    mean: Values = ends - (count - 1) / 2
    return mean[place]


def _finite(values: Sequence[float], kind: str) -> Values:
    array = np.asarray(values, dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        raise InputError(f"the {kind} value of example {bad[0] + 1} is {array[bad[0]]}; expected a finite number")
    return array
