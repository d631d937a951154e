"""Scores of answers in words, as SQuAD has them: equal but for case, punctuation and articles; or some words shared.

Knows texts and nothing of where in a context they were found.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from regard.errors import InputError

__all__ = ["answer_scores", "best_threshold", "normalised"]

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def answer_scores(answers: Mapping[str, Sequence[str]], predicted: Mapping[str, str]) -> dict[str, float]:
    """`exact_match` and `f1` in percent, the mean over all questions, each by that of its answers that suits best.

    A question without answers has none in its context (SQuAD v2): the empty prediction is right. Where there are such
    questions, `no_answer_accuracy` is theirs and `has_answer_f1` that of the others, if any. A question without a
    prediction gets 0, and a prediction without a question is left aside.
    """
    if not answers:
        raise InputError("there are no questions to score; expected at least one")
    exact, shared = {}, {}
    for question, right in answers.items():
        if isinstance(right, str):
            raise InputError(
                f"expected the answers of question {question!r} as a list, got {right!r}; put it in a list"
            )
        said = predicted.get(question)
        exact[question] = 0.0 if said is None else float(normalised(said) in _wanted(right))
        shared[question] = 0.0 if said is None else _best_overlap(right, said)
    scores = {"exact_match": _percent(list(exact.values())), "f1": _percent(list(shared.values()))}
    if without := [exact[question] for question, right in answers.items() if not right]:
        scores["no_answer_accuracy"] = _percent(without)
        if others := [shared[question] for question, right in answers.items() if right]:
            scores["has_answer_f1"] = _percent(others)
    return scores


def best_threshold(
    answers: Mapping[str, Sequence[str]], predicted: Mapping[str, str], margins: Mapping[str, float]
) -> float:
    """The threshold of the highest F1, where a question whose margin is not above it is given no answer.

    `margins` say by how much the prediction beats no answer; a question without one has none. It is what SQuAD v2's
    script calls the best F1 threshold, but between two margins: at one of them, rounding would decide.
    """
    if not margins:
        raise InputError("there are no margins to choose a threshold by; expected one at least")
    gains = sorted(
        (
            (-margin, _best_overlap(answers[question], predicted[question]) - _best_overlap(answers[question], ""))
            for question, margin in margins.items()
        ),
    )
    steps: list[tuple[float, float]] = [
        (-low, sum(gain for _, gain in group)) for low, group in groupby(gains, key=lambda pair: pair[0])
    ]
    lower = [margin for margin, _ in steps[1:]] + [steps[-1][0] - 2]
    best, found, total = 0.0, steps[0][0], 0.0  # so far, nothing is answered
    for (margin, gain), below in zip(steps, lower, strict=True):
        total += gain
        if total > best:
            best, found = total, (margin + below) / 2
    return found


def normalised(text: str) -> str:
    """Small letters, without ASCII punctuation and articles, one space between words."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def _wanted(right: Sequence[str]) -> list[str]:
    """The official script of v2 leaves out answers of articles and punctuation alone."""
    return [one for one in map(normalised, right) if one] or [""]


def _best_overlap(right: Sequence[str], said: str) -> float:
    return max(_overlap(one, normalised(said)) for one in _wanted(right))


def _overlap(wanted: str, said: str) -> float:
    """F1 over words; of an empty text, whether the other is empty too."""
    there, found = wanted.split(), said.split()
    if not there or not found:
        return float(there == found)
    both = sum((Counter(there) & Counter(found)).values())
    return 2 * both / (len(there) + len(found))


def _percent(values: Sequence[float]) -> float:
    return 100 * sum(values) / len(values)
