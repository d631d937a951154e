"""Evaluations of classes equal scikit-learn's on random labels: absent classes, one class only, equal probabilities."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import (
    brier_score_loss,
    confusion_matrix,
    f1_score,
    log_loss,
    precision_recall_fscore_support,
)

from regard.tasks.evaluation import labels as module
from regard.tasks.evaluation.labels import evaluate_classes, evaluate_label_sets
from regard.tasks.metrics import label_scores, multilabel_scores, resamples

LABELS = ["a", "b", "c", "d"]
# Few different values, so that probabilities are often equal.
LOGITS = hnp.arrays(np.float64, st.tuples(st.integers(1, 30), st.just(4)), elements=st.sampled_from([-2.0, 0.0, 1.5]))


def softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits)
    return exponentials / exponentials.sum(1, keepdims=True)


def evaluation(truth: np.ndarray, probabilities: np.ndarray, labels: list[str] = LABELS, **options: Any) -> Any:
    names = [labels[index] for index in truth], [labels[index] for index in probabilities.argmax(1)]
    metrics = label_scores(*names, positive=options.get("positive"))
    return evaluate_classes(truth, probabilities, labels, metrics=metrics, **options)


@pytest.mark.filterwarnings("ignore:A single label")
@given(LOGITS, st.data())
@settings(max_examples=30, deadline=None)
def test_class_scores_and_the_matrix_equal_scikit_learns(logits: np.ndarray, data: st.DataObject) -> None:
    truth = data.draw(hnp.arrays(np.int64, len(logits), elements=st.sampled_from([0, 1, 3])))
    probabilities = softmax(logits)
    predicted = probabilities.argmax(1)
    found = evaluation(truth, probabilities)
    occurring = sorted({*truth, *predicted})
    scores = precision_recall_fscore_support(truth, predicted, labels=occurring, zero_division=0)
    ours = [[one.precision / 100, one.recall / 100, one.f1 / 100, one.support] for one in found.classes]
    assert np.array(ours) == pytest.approx(np.array(scores).T)
    assert [one.label for one in found.classes] == [LABELS[index] for index in occurring]
    assert found.confusion_matrix.counts == confusion_matrix(truth, predicted, labels=occurring).tolist()
    weighted = f1_score(truth, predicted, average="weighted", labels=occurring, zero_division=0)
    assert found.metrics["weighted_f1"] == pytest.approx(100 * weighted)
    assert sum(one.count for one in found.confusions) == len(found.errors) == (truth != predicted).sum()


@given(LOGITS, st.data())
@settings(max_examples=30, deadline=None)
def test_calibration_equals_scikit_learns(logits: np.ndarray, data: st.DataObject) -> None:
    truth = data.draw(hnp.arrays(np.int64, len(logits), elements=st.integers(0, 3)))
    probabilities = softmax(logits)
    found = evaluation(truth, probabilities).calibration
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found.log_loss == pytest.approx(log_loss(truth, probabilities, labels=[0, 1, 2, 3]))
        assert found.brier == pytest.approx(brier_score_loss(truth, probabilities, labels=[0, 1, 2, 3]))


def test_errors_are_the_most_confident_first() -> None:
    truth = np.array([0, 1, 1, 0])
    probabilities = np.array([[0.3, 0.7], [0.1, 0.9], [0.95, 0.05], [0.4, 0.6]])
    found = evaluation(truth, probabilities, ["ham", "spam"], positive="spam")
    cases = [(case.index, case.label, case.predicted, case.confidence, case.probability) for case in found.errors]
    assert cases == [(2, "spam", "ham", 0.95, 0.05), (0, "ham", "spam", 0.7, 0.3), (3, "ham", "spam", 0.6, 0.4)]
    assert found.positive == "spam"
    assert found.finding.startswith("25.0% of 4 examples are classified correctly")


def test_intervals_are_those_of_resampled_examples() -> None:
    """The counts of samples give the scores of the examples of each sample."""
    generator = np.random.default_rng(5)
    truth, probabilities = generator.integers(3, size=60), generator.dirichlet(np.ones(3), size=60)
    found = evaluation(truth, probabilities, ["a", "b", "c"], seed=7)
    names = np.array(["a", "b", "c"])
    true, predicted = names[truth], names[probabilities.argmax(1)]
    samples = [chosen for block in resamples(60, seed=7) for chosen in block]
    assert len(samples) == 1000
    scores = [label_scores(true[one].tolist(), predicted[one].tolist()) for one in samples]
    for name in ("accuracy", "macro_f1", "mcc"):
        expected = np.quantile([each[name] for each in scores], [0.025, 0.975])
        assert found.intervals[name] == pytest.approx(tuple(expected)), name
    assert found.intervals.keys() == found.metrics.keys()


def test_the_interval_of_f1_is_that_of_the_positive_label() -> None:
    generator = np.random.default_rng(1)
    truth, positive = generator.integers(2, size=50), generator.random(50)
    found = evaluation(truth, np.stack([1 - positive, positive], 1), ["no", "yes"], positive="yes")
    samples = [chosen for block in resamples(50, seed=0) for chosen in block]
    names = np.array(["no", "yes"])
    pairs = ((names[truth[one]].tolist(), names[(positive[one] > 0.5) * 1].tolist()) for one in samples)
    expected = [label_scores(*pair, positive="yes")["f1"] for pair in pairs]
    assert found.intervals["f1"] == pytest.approx(tuple(np.quantile(expected, [0.025, 0.975])))


def test_a_matrix_of_very_many_classes_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CLASSES", 2)
    found = evaluation(np.array([0, 1, 2]), np.eye(4)[[1, 1, 2]])
    assert found.confusion_matrix is None
    assert [(one.label, one.predicted, one.count) for one in found.confusions] == [("a", "b", 1)]


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 20), st.just(3)), elements=st.sampled_from([0.0, 0.2, 0.5, 1])))
@settings(max_examples=25, deadline=None)
def test_label_sets_equal_scikit_learns(probabilities: np.ndarray) -> None:
    truth = np.random.default_rng(len(probabilities)).random(probabilities.shape) < 0.4
    names = ["a", "b", "c"]
    sets = [
        [{name for name, has in zip(names, row, strict=True) if has} for row in side]
        for side in (truth, probabilities >= 0.5)
    ]
    found = evaluate_label_sets(truth, probabilities, names, metrics=multilabel_scores(*sets, names), seed=0)
    scores = precision_recall_fscore_support(truth, probabilities >= 0.5, zero_division=0)
    ours = [[one.precision / 100, one.recall / 100, one.f1 / 100, one.support] for one in found.classes]
    assert np.array(ours) == pytest.approx(np.array(scores).T)
    assert [curve.label for curve in found.thresholds] == names
    assert len(found.errors) == ((probabilities >= 0.5) != truth).any(1).sum()
    assert found.intervals.keys() == found.metrics.keys()


def test_the_confidence_of_a_wrong_set_is_that_of_its_worst_label() -> None:
    truth = np.array([[True, False], [True, True]])
    found = evaluate_label_sets(
        truth, np.array([[0.4, 0.9], [0.8, 0.3]]), ["x", "y"], metrics={"accuracy": 0.0}, seed=0
    )
    assert [(case.index, case.label, case.predicted, case.kind) for case in found.errors] == [
        (0, ["x"], ["y"], "wrongly y"),
        (1, ["x", "y"], ["x"], "not y"),
    ]
    assert [case.confidence for case in found.errors] == pytest.approx([0.9, 0.7])
