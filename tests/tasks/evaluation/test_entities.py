"""Entities: nervaluate's schemes on random tags, and what the errors and the confusions are by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nervaluate import Evaluator

from regard.tasks.evaluation.entities import MISSED, SPURIOUS, evaluate_entities, scheme_scores
from regard.tasks.metrics import entities, entity_counts, entity_scores, resamples, scores_of_counts

TAGS = st.sampled_from(["O", "B-LOC", "I-LOC", "B-PER", "I-PER", "B-ORG", "I-ORG"])
SENTENCES = st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=9), min_size=1, max_size=6)
NERVALUATE = {"strict": "strict", "exact": "exact", "partial": "partial", "type": "ent_type"}


@given(SENTENCES)
@settings(max_examples=60, deadline=None)
def test_schemes_and_types_equal_nervaluates(sentences: list[list[tuple[str, str]]]) -> None:
    truth, predicted = ([[pair[side] for pair in one] for one in sentences] for side in (0, 1))
    theirs = Evaluator(truth, predicted, tags=["LOC", "PER", "ORG"], loader="list").evaluate()
    for ours in scheme_scores([*map(entities, truth)], [*map(entities, predicted)]):
        other = theirs["overall"][NERVALUATE[ours.scheme]]
        counts = (ours.correct, ours.incorrect, ours.partial, ours.missed, ours.spurious)
        assert counts == (other.correct, other.incorrect, other.partial, other.missed, other.spurious), ours.scheme
        assert (ours.precision, ours.recall) == pytest.approx((100 * other.precision, 100 * other.recall))
        assert ours.f1 == pytest.approx(100 * other.f1)
    probabilities = [[0.5] * len(entities(tags)) for tags in predicted]
    metrics = entity_scores(truth, predicted)
    found = evaluate_entities(truth, predicted, truth, probabilities, metrics=metrics)
    assert {one.label for one in found.classes} == {*theirs["entities"]}
    for one in found.classes:
        other = theirs["entities"][one.label]["strict"]
        assert (one.precision, one.recall) == pytest.approx((100 * other.precision, 100 * other.recall))
        assert (one.support, one.predicted) == (other.possible, other.actual)
    assert len(found.errors) == sum(one.count for one in found.confusions) + _wrong_ends(found)


def _wrong_ends(found: object) -> int:
    return sum(error.kind == "wrong end" for error in found.errors)  # type: ignore[attr-defined]


def test_errors_by_hand() -> None:
    words = ["John", "Smith", "left", "Paris", "for", "the", "UN", "in", "May"]
    truth = ["B-PER", "I-PER", "O", "B-LOC", "O", "O", "B-ORG", "O", "O"]
    guess = ["B-PER", "O", "O", "B-ORG", "O", "O", "O", "O", "B-LOC"]
    found = evaluate_entities([truth], [guess], [words], [[0.9, 0.6, 0.8]], metrics=entity_scores([truth], [guess]))
    assert [(case.label, case.predicted, case.confidence, case.kind) for case in found.errors] == [
        ("PER: John Smith", "PER: John", 0.9, "wrong end"),
        ("", "LOC: May", 0.8, "spurious"),
        ("LOC: Paris", "ORG: Paris", 0.6, "wrong type"),
        ("ORG: UN", "", None, "missed"),
    ]
    matrix = found.confusion_matrix
    assert matrix is not None
    assert (matrix.rows, matrix.columns) == (["LOC", "ORG", "PER", SPURIOUS], ["LOC", "ORG", "PER", MISSED])
    assert matrix.counts == [[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0], [1, 0, 0, 0]]
    assert found.calibration is not None and found.calibration.accuracy == 0
    confidences = [case.confidence or 0 for case in found.errors]
    assert all(a >= b for a, b in pairwise(confidences))


def test_intervals_resample_sentences() -> None:
    generator = np.random.default_rng(2)
    tags = ["O", "B-LOC", "B-PER"]
    truth, predicted = ([[tags[one] for one in generator.integers(3, size=6)] for _ in range(40)] for _ in range(2))
    probabilities = [[0.5] * len(entities(one)) for one in predicted]
    found = evaluate_entities(truth, predicted, truth, probabilities, metrics=entity_scores(truth, predicted), seed=4)
    counts = entity_counts(truth, predicted)
    samples = [scores_of_counts(counts[one].sum(0))["f1"] for block in resamples(40, seed=4) for one in block]
    assert found.intervals["f1"] == pytest.approx(tuple(np.quantile(samples, [0.025, 0.975])))
    assert found.intervals.keys() == found.metrics.keys()


def test_sentences_without_entities() -> None:
    found = evaluate_entities([["O"]], [["O"]], [["x"]], [[]], metrics=entity_scores([["O"]], [["O"]]))
    assert found.classes == [] and found.errors == [] and found.calibration is None
