"""Evaluation of answers: SQuAD's scores by kind of question, length of the answer and threshold for no answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from regard.tasks.evaluation.calibration import calibrate_event, sample_points
from regard.tasks.evaluation.parts import ErrorCase, GroupScores, NoAnswerCurve, TaskEvaluation
from regard.tasks.metrics import Values, best_threshold, interval_of, match_answer, mean_interval, resampled_sums
from regard.wording import count_of

QUESTION_WORD = re.compile(r"\b(how (?:many|much)|how|who|whom|whose|what|when|where|why|which)\b")
KINDS = ("who", "what", "when", "where", "why", "which", "how", "how many", "other")
NO_ANSWER = "no answer"
MIN_GROUP = 10  # questions of a kind that a remark may be about
LENGTHS = ("1 word", "2 words", "3 to 5 words", "6 or more words")


def question_kind(question: str) -> str:
    """The first question word: who (also whom, whose), what, when, where, why, which, how, how many (also how much)."""
    found = QUESTION_WORD.search(" ".join(question.lower().split()))
    word = found[1] if found else "other"
    return {"whom": "who", "whose": "who", "how much": "how many"}.get(word, word)


def answer_length(answers: Sequence[str]) -> str:
    """The class of length of the first true answer."""
    if not answers:
        return NO_ANSWER
    words = len(answers[0].split())
    return LENGTHS[0 if words <= 1 else 1 if words == 2 else 2 if words <= 5 else 3]


def evaluate_answers(
    questions: Sequence[str],
    answers: Sequence[Sequence[str]],
    predicted: Sequence[str],
    probabilities: Sequence[float],
    *,
    metrics: Mapping[str, float],
    no_answer: NoAnswerCurve | None = None,
    seed: int = 0,
) -> TaskEvaluation:
    """Evaluate one answer per question, "" for none, with its probability; all true `answers` of a question count."""
    scores = np.array([match_answer(*pair) for pair in zip(answers, predicted, strict=True)])
    exact, f1 = scores.T
    has_answer = np.array([bool(texts) for texts in answers])
    rows = np.stack([exact, f1, ~has_answer, exact * ~has_answer, f1 * has_answer], 1)
    sums = resampled_sums(rows, seed=seed)
    without, count = sums[:, 2], len(questions)
    sampled = {
        "exact_match": sums[:, 0] / count,
        "f1": sums[:, 1] / count,
        "no_answer_accuracy": sums[:, 3] / np.maximum(without, 1),
        "has_answer_f1": sums[:, 4] / np.maximum(count - without, 1),
    }
    intervals = {name: interval_of(100 * sampled[name]) for name in metrics}
    certainty = np.array(probabilities)
    wrong = np.flatnonzero(exact == 0)
    wrong = wrong[np.argsort(-(certainty * (1 - f1))[wrong], kind="stable")]
    groups = [
        *_groups("question", KINDS, [question_kind(question) for question in questions], scores, seed),
        *_groups("answer", (*LENGTHS, NO_ANSWER), [answer_length(texts) for texts in answers], scores, seed),
    ]
    if not has_answer.all():
        kinds = ["has an answer" if has else NO_ANSWER for has in has_answer]
        groups += _groups("answerable", ("has an answer", NO_ANSWER), kinds, scores, seed)
    return TaskEvaluation(
        metrics=dict(metrics),
        intervals=intervals,
        finding=(
            f"F1 is {metrics['f1']:.1f} (95% interval: {intervals['f1'][0]:.1f} to {intervals['f1'][1]:.1f}), and "
            f"{metrics['exact_match']:.1f}% of {count_of(count, 'question')} are answered exactly."
        ),
        remarks=_remarks(groups, no_answer),
        calibration=calibrate_event(exact == 1, certainty, of="the answers"),
        no_answer=no_answer,
        groups=groups,
        errors=[
            ErrorCase(
                row,
                list(dict.fromkeys(answers[row])),
                predicted[row],
                float(certainty[row]),
                kind=question_kind(questions[row]),
                score=100 * float(f1[row]),
            )
            for row in wrong.tolist()
        ],
    )


def _groups(by: str, names: Sequence[str], groups: Sequence[str], scores: Values, seed: int) -> list[GroupScores]:
    rows = []
    for name in names:
        chosen = scores[[group == name for group in groups]]
        if len(chosen):
            exact, f1 = (100 * float(value) for value in chosen.mean(0))
            rows.append(GroupScores(by, name, len(chosen), exact, f1, mean_interval(100 * chosen[:, 1], seed=seed)))
    return rows


def _remarks(groups: Sequence[GroupScores], no_answer: NoAnswerCurve | None) -> list[str]:
    kinds = [group for group in groups if group.by == "question" and group.n >= MIN_GROUP]
    remarks = []
    if len(kinds) > 1:
        lowest = min(kinds, key=lambda group: group.f1)
        remarks.append(f"The hardest kind of question is {lowest.group}: F1 {lowest.f1:.1f} of {lowest.n:,}.")
    if no_answer is not None:
        remarks.append(
            f"The threshold for no answer is {no_answer.threshold:.2f}; the best on these questions is "
            f"{no_answer.best_threshold:.2f}, with an F1 of {no_answer.best_f1:.1f}."
        )
    return remarks


def no_answer_curve(
    answers: Sequence[Sequence[str]], predicted: Sequence[str], margins: Sequence[float | None], threshold: float
) -> NoAnswerCurve | None:
    """Scores at every threshold for no answer; `predicted` are the best answers, and `margins` those of their scores
    over that of no answer, None if there is no other. None if no question has a margin."""
    known = {str(index): margin for index, margin in enumerate(margins) if margin is not None}
    if not known:
        return None
    given = np.array([match_answer(*pair) for pair in zip(answers, predicted, strict=True)])
    empty = np.array([match_answer(texts, "") for texts in answers])
    rows = np.array([int(index) for index in known])
    margin = np.array(list(known.values()))
    order = np.argsort(margin, kind="stable")
    last = np.append(np.flatnonzero(np.diff(margin[order])), len(order) - 1)  # of equal margins
    # At the threshold of a margin, all questions up to it have no answer.
    gains = np.cumsum((empty - given)[rows[order]], 0)[last]
    answered = given.copy()
    answered[[value is None for value in margins]] = empty[[value is None for value in margins]]
    totals = 100 * (answered.sum(0) + np.concatenate([np.zeros((1, 2)), gains])) / len(answers)
    thresholds = np.append(margin[order][0] - 1, margin[order][last])  # at first, all are answered
    unanswered = np.append(0, last + 1) + sum(value is None for value in margins)
    best = int(totals[:, 1].argmax())
    points = sample_points(len(thresholds), best)
    texts = {index: list(answers[int(index)]) for index in known}
    return NoAnswerCurve(
        threshold=threshold,
        best_threshold=best_threshold(texts, {index: predicted[int(index)] for index in known}, known),
        best_f1=float(totals[best, 1]),
        thresholds=thresholds[points].tolist(),
        exact_match=totals[points, 0].tolist(),
        f1=totals[points, 1].tolist(),
        unanswered=unanswered[points].tolist(),
    )
