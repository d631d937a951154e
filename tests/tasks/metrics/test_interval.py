"""The bootstrap interval: its width matches theory, it agrees with scipy, and a seed reproduces it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap

from regard.errors import InputError
from regard.tasks.metrics import interval, mean_interval


def test_a_proportion_has_the_binomial_interval() -> None:
    """80 of 100: standard error 4 points, so about 80 plus or minus 7.84."""
    low, high = mean_interval([100.0] * 80 + [0.0] * 20)
    assert low == pytest.approx(72.2, abs=1)
    assert high == pytest.approx(87.8, abs=1)


def test_it_agrees_with_scipy() -> None:
    values = np.random.default_rng(1).exponential(size=200)
    theirs = bootstrap(
        (values,), np.mean, n_resamples=1000, method="percentile", rng=np.random.default_rng(2)
    ).confidence_interval
    assert mean_interval(values) == pytest.approx((theirs.low, theirs.high), abs=0.03)


def test_any_function_of_indices_can_be_scored() -> None:
    values = np.arange(50.0)
    seen = []

    def median(chosen: np.ndarray) -> float:
        seen.append(chosen)
        return float(np.median(values[chosen]))

    low, high = interval(median, 50)
    assert 10 < low < 24.5 < high < 40
    assert len(seen) == 1000
    assert all(len(one) == 50 and one.min() >= 0 and one.max() < 50 for one in seen)
    assert len({tuple(one) for one in seen}) == 1000


def test_seed() -> None:
    values = np.random.default_rng(0).normal(size=40)
    assert mean_interval(values, seed=3) == mean_interval(values, seed=3)
    assert mean_interval(values, seed=3) != mean_interval(values, seed=4)


def test_invalid_input() -> None:
    with pytest.raises(InputError, match="at least one example, got 0"):
        mean_interval([])
