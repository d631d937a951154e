"""Threshold curves and calibration of an event equal scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, precision_recall_curve, roc_auc_score

from regard.tasks.evaluation.calibration import (
    MAX_POINTS,
    calibrate_event,
    calibration_remark,
    sample_points,
    threshold_curve,
)

EVENTS = st.lists(
    st.tuples(st.booleans(), st.one_of(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 1.0]), st.floats(0, 1))),
    min_size=1,
    max_size=60,
)


@given(EVENTS)
@settings(max_examples=60, deadline=None)
def test_curves_equal_scikit_learns(events: list[tuple[bool, float]]) -> None:
    truth, scores = np.array([one[0] for one in events]), np.array([one[1] for one in events])
    found = threshold_curve("x", truth, scores)
    if truth.any():
        precision, recall, thresholds = precision_recall_curve(truth, scores, drop_intermediate=False)
        assert found.thresholds == thresholds[::-1].tolist()
        assert np.array(found.precision) == pytest.approx(100 * precision[:-1][::-1])
        assert np.array(found.recall) == pytest.approx(100 * recall[:-1][::-1])
        f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-300)
        assert found.best_f1 == pytest.approx(100 * f1.max())
        assert found.average_precision == pytest.approx(100 * average_precision_score(truth, scores))
        at_best = scores >= found.best_threshold
        assert found.best_f1 == pytest.approx(200 * (truth & at_best).sum() / (truth.sum() + at_best.sum()))
    else:
        assert found.average_precision is None and found.best_f1 == 0
    if truth.any() and not truth.all():
        assert found.roc_auc == pytest.approx(100 * roc_auc_score(truth, scores))
    else:
        assert found.roc_auc is None


def test_a_long_curve_is_sampled_and_keeps_the_best_threshold() -> None:
    generator = np.random.default_rng(0)
    truth = generator.random(5000) < 0.3
    found = threshold_curve("x", truth, np.clip(0.3 * truth + generator.normal(0.4, 0.2, 5000), 0, 1))
    assert 100 < len(found.thresholds) <= MAX_POINTS
    assert found.best_threshold in found.thresholds
    assert found.f1[found.thresholds.index(found.best_threshold)] == found.best_f1 == max(found.f1)
    assert found.true_positives[-1] == truth.sum() and found.false_positives[-1] == 5000 - truth.sum()


@given(st.integers(1, 1000), st.data())
def test_sampled_points_increase_and_contain_the_ends(count: int, data: st.DataObject) -> None:
    kept = data.draw(st.integers(0, count - 1))
    points = sample_points(count, kept)
    assert len(points) <= MAX_POINTS and {0, count - 1, kept} <= {*points.tolist()}
    assert (np.diff(points) > 0).all()


@given(EVENTS)
@settings(max_examples=60, deadline=None)
def test_calibration_equals_scikit_learns(events: list[tuple[bool, float]]) -> None:
    truth, scores = np.array([one[0] for one in events]), np.array([one[1] for one in events])
    found = calibrate_event(truth, scores, of="x")
    if truth.any() and not truth.all():  # scikit-learn refuses one class
        accuracy, confidence = calibration_curve(truth, scores, n_bins=10)
        filled = [one for one in found.bins if one.count]
        assert [one.accuracy for one in filled] == pytest.approx(accuracy.tolist())
        assert [one.confidence for one in filled] == pytest.approx(confidence.tolist())
        assert found.brier == pytest.approx(brier_score_loss(truth, scores))
    assert found.log_loss == pytest.approx(log_loss(truth, scores, labels=[False, True]))
    gaps = [one.count * abs((one.confidence or 0) - (one.accuracy or 0)) for one in found.bins]
    assert found.ece == pytest.approx(100 * sum(gaps) / len(truth))
    assert len(found.bins) == 10 and sum(one.count for one in found.bins) == len(truth)


def test_remarks_on_calibration() -> None:
    assert "overconfident: the mean confidence is 95.0%, and 80.0% are right" in calibration_remark(95, 80)
    assert "underconfident" in calibration_remark(60, 80)
    assert "face value" in calibration_remark(81, 80)
