"""Evaluation of predicted numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from regard.tasks.evaluation.parts import ErrorCase, Interval, Residuals, TaskEvaluation
from regard.tasks.metrics import Counts, Values, difference_scores, interval_of, resamples
from regard.wording import count_of

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MAX_POINTS = 1000  # of true and predicted values that are drawn


def evaluate_values(truth: Values, predicted: Values, *, metrics: Mapping[str, float], seed: int = 0) -> TaskEvaluation:
    """Evaluate numbers; `mae` and `rmse` are added to the correlations in `metrics`. Every prediction is an error,
    the largest difference first."""
    residuals = predicted - truth
    scores = {**metrics, **difference_scores(truth, predicted)}
    intervals = _intervals(truth, predicted, seed)
    order = np.argsort(-np.abs(residuals), kind="stable")
    low, high = intervals["spearman"]
    quantiles = np.quantile(residuals, QUANTILES)
    num_points = min(len(truth), MAX_POINTS)
    drawn = [len(truth) * number // num_points for number in range(num_points)]
    direction = "high" if residuals.mean() > 0 else "low"
    return TaskEvaluation(
        metrics=scores,
        intervals=intervals,
        finding=(
            f"The predictions for {count_of(len(truth), 'example')} have a rank correlation (Spearman) of "
            f"{scores['spearman']:.1f} with the true values (95% interval: {low:.1f} to {high:.1f})."
        ),
        remarks=[
            f"They are wrong by {scores['mae']:.3g} on average, and {abs(residuals.mean()):.3g} too {direction} in "
            f"the mean; half of them are between {quantiles[1]:+.3g} and {quantiles[3]:+.3g} off."
        ],
        residuals=Residuals(
            float(residuals.mean()),
            {f"{level:g}": float(value) for level, value in zip(QUANTILES, quantiles, strict=True)},
        ),
        points=[(float(truth[row]), float(predicted[row])) for row in drawn],
        errors=[
            ErrorCase(row, float(truth[row]), float(predicted[row]), score=float(residuals[row]))
            for row in order.tolist()
        ],
    )


def _intervals(truth: Values, predicted: Values, seed: int) -> dict[str, Interval]:
    sampled: dict[str, list[Values]] = {"pearson": [], "spearman": [], "mae": [], "rmse": []}
    ids = [np.unique(values, return_inverse=True)[1] for values in (truth, predicted)]
    for block in resamples(len(truth), seed=seed):
        difference = (predicted - truth)[block]
        sampled["pearson"].append(_correlations(truth[block], predicted[block]))
        sampled["spearman"].append(_correlations(*(_ranks(each[block]) for each in ids)))
        sampled["mae"].append(np.abs(difference).mean(1))
        sampled["rmse"].append(np.sqrt((difference**2).mean(1)))
    return {name: interval_of(np.concatenate(values)) for name, values in sampled.items()}


def _correlations(x: Values, y: Values) -> Values:
    """Pearson's correlation of each row, in percent; 0 for a constant row."""
    x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    spread = np.sqrt((x * x).sum(1) * (y * y).sum(1))
    return 100 * np.where(spread > 0, (x * y).sum(1) / np.where(spread > 0, spread, 1.0), 0.0)


def _ranks(ids: Counts) -> Values:
    """The ranks in each row of ids that are ordered as the values; equal values share the mean of their ranks."""
    size = int(ids.max()) + 1
    rows = np.arange(len(ids))[:, None]
    counts = np.bincount((ids + size * rows).reshape(-1), minlength=size * len(ids)).reshape(-1, size)
    ranks: Values = np.cumsum(counts, 1) - (counts - 1) / 2
    return ranks[rows, ids]
