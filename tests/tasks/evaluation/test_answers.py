"""Answers: the curve of no answer follows the rules of SQuAD's script; groups and errors by hand."""

from __future__ import annotations

import string
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.tasks.evaluation.answers import answer_length, evaluate_answers, no_answer_curve, question_kind
from regard.tasks.metrics import answer_scores

TEXTS = st.sampled_from(["red", "the red fox", "fox", "a Red, fox", "blue", "two blue birds fly"])
QUESTIONS = st.lists(
    st.tuples(st.lists(TEXTS, max_size=2), TEXTS, st.sampled_from([-2.0, -0.5, 0.0, 1.0, 3.5])), min_size=1, max_size=20
)


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("Who was it?", "who"),
        ("To whom did he write?", "who"),
        ("In what year did it end?", "what"),
        ("How  many were there?", "how many"),
        ("How much is it?", "how many"),
        ("How does it work?", "how"),
        ("Which one?", "which"),
        ("Name the river.", "other"),
        ("Is somewhat more known?", "other"),
    ],
)
def test_kinds_of_questions(question: str, kind: str) -> None:
    assert question_kind(question) == kind


def test_lengths_of_answers() -> None:
    texts = [[], ["one"], ["one two", "one"], ["a b c d e"], ["a b c d e f"]]
    assert [*map(answer_length, texts)] == ["no answer", "1 word", "2 words", "3 to 5 words", "6 or more words"]


def script_words(text: str) -> list[str]:
    """The script's normalization: lower case, no punctuation, no articles."""
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return [word for word in kept.split() if word not in ("a", "an", "the")]


def script_scores(answers: list[str], predicted: str) -> tuple[float, float]:
    """Exact match and F1 of the script: the best over the true answers; without any, only no answer is right."""
    words, best = script_words(predicted), (0.0, 0.0)
    for true in [script_words(text) for text in answers] or [[]]:
        shared = sum((Counter(true) & Counter(words)).values())
        f1 = float(true == words) if not true or not words else 0.0
        if shared:
            precision, recall = shared / len(words), shared / len(true)
            f1 = 2 * precision * recall / (precision + recall)
        best = max(best[0], float(true == words)), max(best[1], f1)
    return best


@given(QUESTIONS)
@settings(max_examples=50, deadline=None)
def test_the_curve_follows_squads_script(questions: list[tuple[list[str], str, float]]) -> None:
    answers, predicted, margins = ([one[side] for one in questions] for side in (0, 1, 2))
    curve = no_answer_curve(answers, predicted, margins, 0.0)  # type: ignore[arg-type]
    assert curve is not None

    def scores_at(threshold: float) -> tuple[float, float]:
        given = [script_scores(*one[:2]) if one[2] > threshold else (float(not one[0]),) * 2 for one in questions]
        exact, f1 = np.array(given).mean(0)
        return 100 * exact, 100 * f1

    for number, threshold in enumerate(curve.thresholds):
        assert (curve.exact_match[number], curve.f1[number]) == pytest.approx(scores_at(threshold))
        assert curve.unanswered[number] == sum(margin <= threshold for margin in margins)
    assert scores_at(curve.best_threshold)[1] == pytest.approx(curve.best_f1) == pytest.approx(max(curve.f1))
    # The script's sweep: at first no question is answered, then one after the other, the surest first.
    total = best = float(sum(not texts for texts in answers))
    for margin in sorted({*margins}, reverse=True):
        for texts, text, one in questions:
            if one == margin:
                total += script_scores(texts, text)[1] if texts else -1.0
        best = max(best, total)
    assert curve.best_f1 == pytest.approx(100 * best / len(questions))


def test_groups_and_errors_by_hand() -> None:
    questions = ["Who ran?", "Who sat?", "How many ran?", "When was it?"]
    answers = [["the fox", "a fox"], ["Mr. Owl Senior"], ["two"], []]
    predicted = ["fox", "Owl", "three", ""]
    metrics = answer_scores(
        {str(i): texts for i, texts in enumerate(answers)}, {str(i): text for i, text in enumerate(predicted)}
    )
    found = evaluate_answers(questions, answers, predicted, [0.9, 0.5, 0.8, 0.7], metrics=metrics)
    groups = {(one.by, one.group): (one.n, one.exact_match, one.f1) for one in found.groups}
    assert groups["question", "who"] == (2, 50.0, 75.0)
    assert groups["question", "how many"] == (1, 0.0, 0.0)
    assert groups["answer", "no answer"] == groups["answerable", "no answer"] == (1, 100.0, 100.0)
    assert groups["answerable", "has an answer"][0] == 3
    assert [(case.index, case.label, case.predicted) for case in found.errors] == [
        (2, ["two"], "three"),
        (1, ["Mr. Owl Senior"], "Owl"),
    ]
    assert found.intervals.keys() == found.metrics.keys()
