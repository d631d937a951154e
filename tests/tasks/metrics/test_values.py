"""Correlations against scipy, and where they are undefined."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr

from regard.errors import InputError
from regard.tasks.metrics import value_scores

STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3)), min_size=3, max_size=40)


@given(STEPS)
def test_values_with_ties_are_scored_as_scipy_does(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = (list(map(float, side)) for side in zip(*pairs, strict=True))
    found = value_scores(truth, predicted)
    if len({*truth}) == 1 or len({*predicted}) == 1:
        assert found == {"pearson": 0.0, "spearman": 0.0}
    else:
        assert found["pearson"] == pytest.approx(100 * pearsonr(truth, predicted).statistic, abs=1e-9)
        assert found["spearman"] == pytest.approx(100 * spearmanr(truth, predicted).statistic, abs=1e-9)


def test_random_values_are_scored_as_scipy_does() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=500)
    predicted = 3e150 * (truth + rng.normal(size=500)) - 1e149
    found = value_scores(truth.tolist(), predicted.tolist())
    assert found["pearson"] == pytest.approx(100 * pearsonr(truth, predicted / 1e150).statistic)
    assert found["spearman"] == pytest.approx(100 * spearmanr(truth, predicted).statistic)


def test_an_example_by_hand() -> None:
    """Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5)."""
    found = value_scores([0.0, 1.0, 1.0, 50.0], [1.0, 2.0, 3.0, 4.0])
    assert found["spearman"] == pytest.approx(100 * 4.5 / (4.5 * 5) ** 0.5)
    assert value_scores([1.0, 2.0], [7.0, 3.0]) == pytest.approx({"pearson": -100.0, "spearman": -100.0})


def test_the_correlation_of_constant_values_is_zero() -> None:
    assert value_scores([0.1, 0.1, 0.1], [1.0, 2.0, 3.0]) == {"pearson": 0.0, "spearman": 0.0}


def test_values_that_cannot_be_scored() -> None:
    with pytest.raises(InputError, match="predicted value of example 2 is nan"):
        value_scores([1.0, 2.0], [1.0, float("nan")])
    with pytest.raises(InputError, match="one prediction for each of the 2 examples, got 3"):
        value_scores([1.0, 2.0], [1.0, 2.0, 3.0])
