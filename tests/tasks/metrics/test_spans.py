"""Entities and their scores: conlleval's rules by hand, nervaluate's strict scores on random tags."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nervaluate import Evaluator

from regard.errors import InputError
from regard.tasks.metrics import Entity, entities, entity_counts, entity_scores, scores_of_counts

TAGS = st.sampled_from(["O", "B-LOC", "I-LOC", "B-PER", "I-PER"])
SENTENCES = st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=8), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", []),
        ("O O", []),
        ("B-LOC I-LOC O B-PER", [("LOC", 0, 2), ("PER", 3, 4)]),
        ("B-LOC B-LOC", [("LOC", 0, 1), ("LOC", 1, 2)]),
        ("O I-LOC I-LOC", [("LOC", 1, 3)]),  # without a B tag, it begins here
        ("B-LOC I-PER I-PER O", [("LOC", 0, 1), ("PER", 1, 3)]),
        ("I-LOC B-LOC I-LOC", [("LOC", 0, 1), ("LOC", 1, 3)]),
        ("B-LOC O I-LOC", [("LOC", 0, 1), ("LOC", 2, 3)]),
        ("B-work-of-art I-work-of-art", [("work-of-art", 0, 2)]),
    ],
)
def test_entities(tags: str, expected: list[tuple[str, int, int]]) -> None:
    assert entities(tags.split()) == [Entity(*one) for one in expected]


def test_an_example_by_hand() -> None:
    """5 of 6 entities were found and 3 are correct: one has a wrong end, one a wrong label."""
    truth = [
        ["B-PER", "I-PER", "O", "B-LOC"],
        ["B-ORG", "I-ORG", "I-ORG", "O"],
        ["O", "O"],
        ["B-LOC", "B-LOC", "O", "B-PER"],
    ]
    predicted = [
        ["B-PER", "I-PER", "O", "B-LOC"],
        ["B-ORG", "I-ORG", "O", "O"],
        ["O", "O"],
        ["B-LOC", "O", "O", "B-ORG"],
    ]
    found = entity_scores(truth, predicted)
    assert found["precision"] == pytest.approx(60)
    assert found["recall"] == pytest.approx(50)
    assert found["f1"] == pytest.approx(100 * 2 * 0.6 * 0.5 / 1.1)
    assert found["accuracy"] == pytest.approx(100 * 11 / 14)
    assert entity_counts(truth, predicted).tolist() == [[2, 2, 2], [0, 1, 1], [0, 0, 0], [1, 2, 3]]


def test_the_example_that_conlleval_documents() -> None:
    """459 phrases; found: 539; correct: 371. precision: 68.83%; recall: 80.83%; FB1: 74.35."""
    found = scores_of_counts(np.array([371, 539, 459]))
    assert {name: round(value, 2) for name, value in found.items()} == {
        "precision": 68.83,
        "recall": 80.83,
        "f1": 74.35,
    }


@given(SENTENCES)
def test_scores_are_those_of_nervaluate_strict(sentences: list[list[tuple[str, str]]]) -> None:
    truth = [[right for right, _ in sentence] for sentence in sentences]
    predicted = [[predicted_tag for _, predicted_tag in sentence] for sentence in sentences]
    found = entity_scores(truth, predicted)
    theirs = Evaluator(truth, predicted, tags=["LOC", "PER"], loader="list").evaluate()["overall"]["strict"]
    counts = entity_counts(truth, predicted).sum(0)
    assert counts.tolist() == [theirs.correct, theirs.actual, theirs.possible]
    assert found["precision"] == pytest.approx(100 * theirs.precision)
    assert found["recall"] == pytest.approx(100 * theirs.recall)
    assert found["f1"] == pytest.approx(100 * theirs.f1)


@given(SENTENCES)
def test_scores_of_the_truth_are_perfect(sentences: list[list[tuple[str, str]]]) -> None:
    truth = [[right for right, _ in sentence] for sentence in sentences]
    found = entity_scores(truth, truth)
    there = any(entities(tags) for tags in truth)
    assert (found["precision"], found["recall"], found["f1"]) == ((100, 100, 100) if there else (0, 0, 0))
    assert found["accuracy"] == 100
    counts = entity_counts(truth, truth).sum(0)
    assert scores_of_counts(counts)["f1"] == found["f1"]


def test_tags_that_cannot_be_scored() -> None:
    with pytest.raises(InputError, match="word 2 has the tag 'LOC'"):
        entities(["O", "LOC"])
    with pytest.raises(InputError, match="word 1 has the tag 'B-'"):
        entities(["B-"])
    with pytest.raises(InputError, match="sentence 2 has 2 words, but 1 tags"):
        entity_scores([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(InputError, match="no examples to score"):
        entity_scores([], [])
