"""Scores of answers in words, as SQuAD has them: equal but for case, punctuation and articles; or some words shared.

Knows texts and nothing of where in a context they were found.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

from regard.errors import InputError

__all__ = ["answer_scores", "normalised"]

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
        # The official script of v2 leaves out answers of articles and punctuation alone.
        wanted = [one for one in map(normalised, right) if one] or [""]
        exact[question] = 0.0 if said is None else float(normalised(said) in wanted)
        shared[question] = 0.0 if said is None else max(_overlap(one, normalised(said)) for one in wanted)
    scores = {"exact_match": _percent(list(exact.values())), "f1": _percent(list(shared.values()))}
    if without := [exact[question] for question, right in answers.items() if not right]:
        scores["no_answer_accuracy"] = _percent(without)
        if others := [shared[question] for question, right in answers.items() if right]:
            scores["has_answer_f1"] = _percent(others)
    return scores


def normalised(text: str) -> str:
    """Small letters, without ASCII punctuation and articles, one space between words."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def _overlap(wanted: str, said: str) -> float:
    """F1 over words; of an empty text, whether the other is empty too."""
    there, found = wanted.split(), said.split()
    if not there or not found:
        return float(there == found)
    both = sum((Counter(there) & Counter(found)).values())
    return 2 * both / (len(there) + len(found))


def _percent(values: Sequence[float]) -> float:
    return 100 * sum(values) / len(values)
