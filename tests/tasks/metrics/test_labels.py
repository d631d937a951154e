"""Label metrics compared with scikit-learn on random lists, and by hand for Regard's own rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from regard.errors import InputError
from regard.tasks.metrics import choose_positive_label, label_scores, multilabel_scores

PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), min_size=1, max_size=40)
TWO = st.lists(st.tuples(st.sampled_from("01"), st.sampled_from("01")), min_size=1, max_size=40)
SETS = st.lists(st.tuples(*[st.sets(st.sampled_from("abc"))] * 2), min_size=1, max_size=30)


@given(PAIRS)
def test_many_labels_are_scored_as_scikit_learn_does(pairs: list[tuple[str, str]]) -> None:
    truth, predicted = (list(side) for side in zip(*pairs, strict=True))
    found = label_scores(truth, predicted)
    macro = 100 * f1_score(truth, predicted, average="macro", zero_division=0)
    assert found["accuracy"] == pytest.approx(100 * accuracy_score(truth, predicted))
    assert found["macro_f1"] == pytest.approx(macro)
    if len({*truth, *predicted}) > 2:
        assert found["f1"] == pytest.approx(macro)
    if len({*truth, *predicted}) > 1:  # scikit-learn warns about a single label
        assert found["mcc"] == pytest.approx(100 * matthews_corrcoef(truth, predicted), abs=1e-9)


@given(TWO, st.sampled_from("01"))
def test_two_labels_are_scored_as_scikit_learn_does(pairs: list[tuple[str, str]], positive: str) -> None:
    truth, predicted = (list(side) for side in zip(*pairs, strict=True))
    expected = f1_score([t == positive for t in truth], [p == positive for p in predicted], zero_division=0)
    assert label_scores(truth, predicted, positive=positive)["f1"] == pytest.approx(100 * expected)


@given(SETS)
def test_sets_of_labels_are_scored_as_scikit_learn_does(pairs: list[tuple[set[str], set[str]]]) -> None:
    truth, predicted = (list(side) for side in zip(*pairs, strict=True))
    right, found_labels = (np.array([[label in one for label in "abc"] for one in side]) for side in (truth, predicted))
    found = multilabel_scores(truth, predicted, ["a", "b", "c"])
    assert found["accuracy"] == pytest.approx(100 * accuracy_score(right, found_labels))
    for kind in ("micro", "macro"):
        expected = 100 * f1_score(right, found_labels, average=kind, zero_division=0)
        assert found[f"{kind}_f1"] == pytest.approx(expected)
    assert found["f1"] == found["micro_f1"]


def test_an_example_by_hand() -> None:
    """Spam: 2 hits, 1 false alarm, 1 miss; ham: 4 hits. F1 of spam 2*2/(2*2+1+1), of ham 2*4/(2*4+1+1)."""
    truth = ["spam"] * 3 + ["ham"] * 5
    predicted = ["spam", "spam", "ham", "spam", "ham", "ham", "ham", "ham"]
    found = label_scores(truth, predicted)
    assert found == pytest.approx(
        {
            "accuracy": 75.0,
            "f1": 100 * 2 / 3,
            "macro_f1": 100 * (2 / 3 + 4 / 5) / 2,
            "mcc": 100 * (2 * 4 - 1 * 1) / (3 * 3 * 5 * 5) ** 0.5,
        }
    )


@pytest.mark.parametrize(
    ("truth", "positive"),
    [
        (["0", "1", "1"], "1"),
        (["ham", "Spam", "Spam"], "Spam"),
        (["negative", "positive"], "positive"),
        (["No", "No", "YES", "YES", "YES"], "YES"),
        (["FALSE", "TRUE", "TRUE"], "TRUE"),
        (["cat", "dog", "dog"], "cat"),
        (["cat", "cat", "dog"], "dog"),
        (["cat", "dog"], "dog"),
    ],
)
def test_the_positive_label(truth: list[str], positive: str) -> None:
    assert choose_positive_label(truth) == positive
    predicted = [truth[0]] * len(truth)
    assert label_scores(truth, predicted)["f1"] == label_scores(truth, predicted, positive=positive)["f1"]


def test_undefined_scores() -> None:
    assert label_scores(["0", "0"], ["0", "0"], positive="1") == {
        "accuracy": 100.0,
        "f1": 0.0,
        "macro_f1": 100.0,
        "mcc": 0.0,
    }
    assert multilabel_scores([set(), set()], [[], []], ["a"]) == {
        "accuracy": 100.0,
        "micro_f1": 0.0,
        "macro_f1": 0.0,
        "f1": 0.0,
    }


def test_the_correlation_of_many_examples_does_not_overflow() -> None:
    count = 200_000
    truth = ["a", "b"] * count
    predicted = ["a", "b", "a", "a"] * (count // 2)
    assert label_scores(truth, predicted)["mcc"] == pytest.approx(100 * (1 * 2 - 1 * 0) / (3 * 2 * 1 * 2) ** 0.5)


def test_lists_that_cannot_be_compared() -> None:
    with pytest.raises(InputError, match="one prediction for each of the 2 examples, got 1"):
        label_scores(["a", "b"], ["a"])
    with pytest.raises(InputError, match="no examples to score"):
        label_scores([], [])
    with pytest.raises(InputError, match=r"example 2 .*label 'toxik'; did you mean 'toxic'"):
        multilabel_scores([["toxic"], []], [[], ["toxik"]], ["toxic", "insult"])
    with pytest.raises(InputError, match="as a list, got 'toxic'"):
        multilabel_scores(["toxic"], [[]], ["toxic"])
    with pytest.raises(InputError, match="names of the labels"):
        multilabel_scores([[]], [[]], [])
