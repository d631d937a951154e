"""Evaluations of numbers equal scipy's and scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata
from sklearn.metrics import mean_absolute_error, root_mean_squared_error

from regard.tasks.evaluation.values import MAX_POINTS, evaluate_values
from regard.tasks.metrics import difference_scores, resamples, value_scores

NUMBERS = st.sampled_from([0.0, 1.0, 2.5, 4.0, 5.0])


@given(st.lists(st.tuples(NUMBERS, st.floats(-10, 10)), min_size=1, max_size=40))
@settings(max_examples=60)
def test_differences_equal_scikit_learns(pairs: list[tuple[float, float]]) -> None:
    truth, predicted = (list(side) for side in zip(*pairs, strict=True))
    found = difference_scores(truth, predicted)
    assert found["mae"] == pytest.approx(mean_absolute_error(truth, predicted))
    assert found["rmse"] == pytest.approx(root_mean_squared_error(truth, predicted))


def test_intervals_are_those_of_resampled_examples() -> None:
    generator = np.random.default_rng(3)
    truth = generator.integers(6, size=30).astype(float)  # with equal values
    predicted = np.round(truth + generator.normal(0, 1.5, 30), 1)
    found = evaluate_values(truth, predicted, metrics=value_scores(truth, predicted), seed=2)  # type: ignore[arg-type]
    samples = [chosen for block in resamples(30, seed=2) for chosen in block]
    expected = {
        "pearson": [100 * np.corrcoef(truth[one], predicted[one])[0, 1] for one in samples],
        "spearman": [100 * np.corrcoef(rankdata(truth[one]), rankdata(predicted[one]))[0, 1] for one in samples],
        "mae": [np.abs(predicted - truth)[one].mean() for one in samples],
    }
    for name, scores in expected.items():
        assert found.intervals[name] == pytest.approx(tuple(np.quantile(scores, [0.025, 0.975]))), name
    assert found.intervals.keys() == found.metrics.keys()


def test_residuals_and_errors() -> None:
    truth, predicted = np.array([1.0, 2.0, 3.0]), np.array([1.5, 1.0, 3.0])
    found = evaluate_values(truth, predicted, metrics=value_scores(truth, predicted))  # type: ignore[arg-type]
    assert [(case.index, case.label, case.predicted, case.score) for case in found.errors] == [
        (1, 2.0, 1.0, -1.0),
        (0, 1.0, 1.5, 0.5),
        (2, 3.0, 3.0, 0.0),
    ]
    assert found.residuals is not None
    assert found.residuals.mean == pytest.approx(-1 / 6)
    assert found.residuals.quantiles["0.5"] == 0
    assert found.points == [(1.0, 1.5), (2.0, 1.0), (3.0, 3.0)]


def test_the_points_of_a_drawing_are_limited() -> None:
    values = np.arange(2500.0)
    found = evaluate_values(values, values, metrics={"spearman": 100.0})
    assert len(found.points) == MAX_POINTS and len(found.errors) == 2500
