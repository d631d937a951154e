"""Answer metrics, computed by hand with SQuAD's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.tasks.metrics import answer_scores, best_threshold, normalize_answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat,\tsat.", "cat sat"),
        ("An apple a day", "apple day"),
        ("a.", ""),
        ("theatre and Anna", "theatre and anna"),
        ("U.S.-born", "usborn"),
        ("the-end", "theend"),  # punctuation is removed first, so this article remains
        ("naïve “quotes”", "naïve “quotes”"),  # only ASCII punctuation is removed
    ],
)
def test_normalized_answers(text: str, expected: str) -> None:
    assert normalize_answer(text) == expected


def test_an_example_by_hand() -> None:
    answers = {
        "same": ["Denver Broncos"],
        "articles": ["the Broncos!"],
        "best": ["Santa Clara, California", "Levi's Stadium", "Levi's Stadium in Santa Clara"],
        "none": ["gold"],
        "twice": ["very very good"],
    }
    predicted = {
        "same": "Denver Broncos",
        "articles": "Broncos",
        "best": "stadium in Santa Clara",  # 4 of 4 words, and 4 of the third answer's 5
        "none": "silver",
        "twice": "very good very very",  # 3 of 4, and 3 of 3
        "unasked": "gold",
    }
    found = answer_scores(answers, predicted)
    assert found == pytest.approx({"exact_match": 40.0, "f1": 100 * (1 + 1 + 8 / 9 + 0 + 6 / 7) / 5})


def test_a_question_without_a_prediction_scores_zero() -> None:
    found = answer_scores({"a": ["x"], "b": []}, {})
    assert found == {"exact_match": 0, "f1": 0, "no_answer_accuracy": 0, "has_answer_f1": 0}


def test_questions_that_have_no_answer() -> None:
    answers: dict[str, list[str]] = {"1": ["blue sky"], "2": [], "3": [], "4": ["red"]}
    predicted = {"1": "sky", "2": "", "3": "something", "4": ""}
    found = answer_scores(answers, predicted)
    assert found == pytest.approx(
        {
            "exact_match": 25.0,
            "f1": 100 * (2 / 3 + 1) / 4,
            "no_answer_accuracy": 50.0,
            "has_answer_f1": 100 * (2 / 3) / 2,
        }
    )
    assert set(answer_scores({"2": []}, {"2": ""})) == {"exact_match", "f1", "no_answer_accuracy"}


def test_an_answer_of_articles_alone() -> None:
    """As in SQuAD v2's script, it is ignored if there is another answer; otherwise the empty prediction is correct."""
    assert answer_scores({"q": ["the", "end"]}, {"q": ""}) == {"exact_match": 0, "f1": 0}
    assert answer_scores({"q": ["the"]}, {"q": "a"}) == {"exact_match": 100, "f1": 100}


def test_answers_that_cannot_be_scored() -> None:
    with pytest.raises(InputError, match="no questions to score"):
        answer_scores({}, {})
    with pytest.raises(InputError, match="answers of question 'q' as a list"):
        answer_scores({"q": "gold"}, {})


def apply_threshold(predicted: dict[str, str], margins: dict[str, float], threshold: float) -> dict[str, str]:
    return {question: prediction if margins[question] > threshold else "" for question, prediction in predicted.items()}


def test_the_best_threshold_by_hand() -> None:
    answers = {"right": ["one"], "half": ["two three four"], "none": [], "late": ["five"], "never": []}
    predicted = {"right": "one", "half": "two", "none": "six", "late": "five", "never": "seven"}
    margins = {"right": 5.0, "half": 3.0, "none": 1.0, "late": -2.0, "never": -4.0}
    # In descending order of margin: 2 + 1, + 0.5, - 1, + 1, - 1. The first maximum, 3.5, is chosen.
    assert best_threshold(answers, predicted, margins) == 2.0
    assert best_threshold(answers, predicted, margins | {"none": -3.0}) == -2.5
    # Questions with equal margins are answered all together or not at all.
    assert best_threshold(answers, predicted, margins | {"none": 3.0, "late": -9.0}) == 4.0
    assert best_threshold({"a": [], "b": []}, {"a": "x", "b": "y"}, {"a": 7.0, "b": 9.0}) == 9.0
    assert best_threshold({"a": ["x"]}, {"a": "x"}, {"a": 7.0}) == 6.0
    with pytest.raises(InputError, match="no margins"):
        best_threshold({"a": []}, {}, {})


QUESTIONS = st.tuples(
    st.sampled_from([(), ("one two",), ("two", "one three")]), st.sampled_from(["one", "two", "one two", "four"])
)


@given(st.lists(st.tuples(QUESTIONS, st.integers(-6, 6)), min_size=1, max_size=12))
def test_no_other_threshold_has_a_better_f1(drawn: list[tuple[tuple[tuple[str, ...], str], int]]) -> None:
    """The definition of SQuAD v2's best F1, evaluated at every margin."""
    answers = {str(index): list(right) for index, ((right, _), _) in enumerate(drawn)}
    predicted = {str(index): prediction for index, ((_, prediction), _) in enumerate(drawn)}
    margins = {str(index): float(margin) for index, (_, margin) in enumerate(drawn)}
    found = best_threshold(answers, predicted, margins)
    each = [
        answer_scores(answers, apply_threshold(predicted, margins, threshold))["f1"]
        for threshold in (found, -7.0, *margins.values())
    ]
    assert each[0] == pytest.approx(max(each))
