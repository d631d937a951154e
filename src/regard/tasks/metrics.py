"""Metrics of predictions, in percent: labels, values, entities, answers, and bootstrap intervals.

Plain Python and numpy on lists of true and predicted values. A new metric is one function here and one entry in the
dictionary that its `*_scores` function returns; reports and pages show every entry. An undefined score (0 / 0) is 0.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError, suggest

POSITIVE = ("1", "true", "yes", "spam", "positive")  # usual names of the positive class, in any case
ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
ROUNDS, LEVEL = 1000, 0.95  # of bootstrap intervals

Counts = NDArray[np.int64]
Values = NDArray[np.float64]


def check_pairs(truth: Sized, predicted: Sized) -> None:
    """Raise InputError for lists of different lengths and empty lists."""
    if len(truth) != len(predicted):
        raise InputError(
            f"expected one prediction for each of the {len(truth)} examples, got {len(predicted)}; "
            "compare predictions with the file they were made from"
        )
    if not len(truth):
        raise InputError("there are no examples to score; expected at least one")


def label_scores(truth: Sequence[str], predicted: Sequence[str], *, positive: str | None = None) -> dict[str, float]:
    """`accuracy`, `f1`, `macro_f1` (over the labels that occur in either list) and `mcc`.

    The values equal scikit-learn's with `zero_division=0`. `f1` is that of the label `positive`; by default that of
    `choose_positive_label` for two labels, and `macro_f1` for more.
    """
    check_pairs(truth, predicted)
    labels = sorted({*truth, *predicted})
    table = _confusion(truth, predicted, labels)
    each = _f1(np.diag(table), table.sum(0), table.sum(1))
    macro = float(each.mean())
    if positive is None and len(labels) <= 2:
        positive = choose_positive_label(truth, labels)
    f1 = macro if positive is None else float(each[labels.index(positive)]) if positive in labels else 0.0
    return {
        "accuracy": 100 * float(np.trace(table) / len(truth)),
        "f1": 100 * f1,
        "macro_f1": 100 * macro,
        "mcc": 100 * _matthews(table),
    }


def choose_positive_label(truth: Sequence[str], labels: Collection[str] = ()) -> str:
    """The positive one of two labels: by its name (`POSITIVE`), else the rarer one in `truth`, else the last one."""
    count = Counter(truth)
    known = sorted({*count, *labels}, reverse=True)
    for name in POSITIVE:
        for label in known:
            if label.casefold() == name:
                return label
    return min(known, key=lambda label: count[label])


def multilabel_scores(
    truth: Sequence[Collection[str]], predicted: Sequence[Collection[str]], labels: Sequence[str]
) -> dict[str, float]:
    """`accuracy` (all labels of an example correct), `micro_f1`, `macro_f1` over `labels`, and `f1` = `micro_f1`."""
    check_pairs(truth, predicted)
    if not labels:
        raise InputError("expected the names of the labels, got none")
    true, guessed = _memberships(truth, labels), _memberships(predicted, labels)
    counts = (true & guessed).sum(0), guessed.sum(0), true.sum(0)
    micro = float(_f1(*(count.sum(keepdims=True) for count in counts))[0])
    return {
        "accuracy": 100 * float((true == guessed).all(1).mean()),
        "micro_f1": 100 * micro,
        "macro_f1": 100 * float(_f1(*counts).mean()),
        "f1": 100 * micro,
    }


def _confusion(truth: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> Counts:
    """The confusion matrix: true labels are rows, predicted ones columns."""
    ids = {label: index for index, label in enumerate(labels)}
    table = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(table, ([ids[label] for label in truth], [ids[label] for label in predicted]), 1)
    return table


def _f1(both: Counts, predicted: Counts, true: Counts) -> Values:
    """2 TP / (2 TP + FP + FN) of each label."""
    scores: Values = 2 * both / np.maximum(predicted + true, 1)
    return scores


def _matthews(table: Counts) -> float:
    """Matthews' correlation coefficient for any number of classes (Gorodkin 2004, the R_K statistic)."""
    # Python integers, because the product of the two sums below exceeds 64 bits at about 50,000 examples.
    true, predicted = table.sum(1).tolist(), table.sum(0).tolist()
    total = sum(true)
    covariance = int(np.trace(table)) * total - sum(t * p for t, p in zip(true, predicted, strict=True))
    spread = (total**2 - sum(p * p for p in predicted)) * (total**2 - sum(t * t for t in true))
    return covariance / float(spread) ** 0.5 if spread else 0.0


def _memberships(sets: Sequence[Collection[str]], labels: Sequence[str]) -> NDArray[np.bool_]:
    ids = {label: index for index, label in enumerate(labels)}
    table = np.zeros((len(sets), len(labels)), dtype=np.bool_)
    for row, names in enumerate(sets):
        if isinstance(names, str):
            raise InputError(f"expected the labels of example {row + 1} as a list, got {names!r}; put it in a list")
        for name in names:
            if name not in ids:
                raise InputError(f"example {row + 1} has the unknown label {name!r}; {suggest(name, labels)}")
            table[row, ids[name]] = True
    return table


def value_scores(truth: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """`pearson` and `spearman` (equal values share the mean of their ranks)."""
    check_pairs(truth, predicted)
    x, y = _finite(truth, "true"), _finite(predicted, "predicted")
    return {
        "pearson": 100 * _correlation(x, y),
        "spearman": 100 * _correlation(_ranks(x), _ranks(y)),
    }


def _correlation(x: Values, y: Values) -> float:
    if x.min() == x.max() or y.min() == y.max():
        return 0.0
    x, y = _centered(x), _centered(y)
    return float(np.clip(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)), -1, 1))


def _centered(values: Values) -> Values:
    """Values with mean 0 and maximum 1, so that squares neither overflow nor underflow."""
    values = values / np.abs(values).max()
    values = values - values.mean()
    scaled: Values = values / np.abs(values).max()
    return scaled


def _ranks(values: Values) -> Values:
    _, index, count = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    mean: Values = ends - (count - 1) / 2
    return mean[index]


def _finite(values: Sequence[float], kind: str) -> Values:
    array = np.asarray(values, dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        raise InputError(f"the {kind} value of example {bad[0] + 1} is {array[bad[0]]}; expected a finite number")
    return array


class Entity(NamedTuple):
    """The words [start, end) of a sentence."""

    label: str
    start: int
    end: int


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of one sentence, in order."""
    result: list[Entity] = []
    label, start = "", 0  # the open entity, if its label is not empty
    for index, tag in enumerate([*tags, "O"]):
        prefix, name = _split_tag(tag, index)
        if label and not (prefix == "I" and name == label):
            result.append(Entity(label, start, index))
            label = ""
        if name and not label:
            label, start = name, index
    return result


def entity_scores(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """`precision`, `recall` and `f1` of entities over all sentences, and the `accuracy` of the tags.

    An entity is correct if its label and both ends match. A tag I-X without B-X before it begins an entity, as in
    conlleval.
    """
    scores = scores_of_counts(entity_counts(truth, predicted).sum(0))
    pairs = [pair for tags in zip(truth, predicted, strict=True) for pair in zip(*tags, strict=True)]
    return scores | {"accuracy": 100 * sum(a == b for a, b in pairs) / max(len(pairs), 1)}


def entity_counts(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Counts:
    """For each sentence the number of correct, predicted and true entities: (n, 3)."""
    check_pairs(truth, predicted)
    rows = []
    for number, (true, tags) in enumerate(zip(truth, predicted, strict=True), 1):
        if len(true) != len(tags):
            raise InputError(f"sentence {number} has {len(true)} words, but {len(tags)} tags were predicted for it")
        expected, guessed = entities(true), entities(tags)
        rows.append((len({*expected} & {*guessed}), len(guessed), len(expected)))
    return np.array(rows, dtype=np.int64)


def scores_of_counts(counts: Counts) -> dict[str, float]:
    """`precision`, `recall` and `f1` from the sum (3,) of `entity_counts`."""
    correct, predicted, true = (float(number) for number in counts)
    return {
        "precision": 100 * correct / max(predicted, 1),
        "recall": 100 * correct / max(true, 1),
        "f1": 200 * correct / max(predicted + true, 1),
    }


def _split_tag(tag: str, index: int) -> tuple[str, str]:
    """B-LOC -> B, LOC; a label may contain hyphens."""
    if tag == "O":
        return "O", ""
    prefix, _, name = tag.partition("-")
    if prefix not in ("B", "I") or not name:
        raise InputError(f"word {index + 1} has the tag {tag!r}; expected O, or B- or I- and a label, such as B-LOC")
    return prefix, name


def answer_scores(answers: Mapping[str, Sequence[str]], predicted: Mapping[str, str]) -> dict[str, float]:
    """SQuAD's `exact_match` and `f1`: means over all questions, each with its best matching true answer.

    The empty prediction is correct for a question without answers (SQuAD v2). If there are such questions,
    `no_answer_accuracy` is their accuracy and `has_answer_f1` the F1 of the others. A question without a prediction
    scores 0, and a prediction without a question is ignored.
    """
    if not answers:
        raise InputError("there are no questions to score; expected at least one")
    exact, shared = {}, {}
    for question, texts in answers.items():
        if isinstance(texts, str):
            raise InputError(
                f"expected the answers of question {question!r} as a list, got {texts!r}; put it in a list"
            )
        answer = predicted.get(question)
        exact[question] = 0.0 if answer is None else float(normalize_answer(answer) in _true_answers(texts))
        shared[question] = 0.0 if answer is None else _best_overlap(texts, answer)
    scores = {"exact_match": _percent(list(exact.values())), "f1": _percent(list(shared.values()))}
    if without := [exact[question] for question, texts in answers.items() if not texts]:
        scores["no_answer_accuracy"] = _percent(without)
        if others := [shared[question] for question, texts in answers.items() if texts]:
            scores["has_answer_f1"] = _percent(others)
    return scores


def best_threshold(
    answers: Mapping[str, Sequence[str]], predicted: Mapping[str, str], margins: Mapping[str, float]
) -> float:
    """The threshold with the highest F1: questions with a margin up to it get no answer.

    `margins` are the scores of the predictions minus those of "no answer". This is SQuAD v2's best F1 threshold, but
    halfway between two margins, where rounding does not matter.
    """
    if not margins:
        raise InputError("there are no margins to choose a threshold from; expected at least one")
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
    best, threshold, total = 0.0, steps[0][0], 0.0  # at first, no question is answered
    for (margin, gain), below in zip(steps, lower, strict=True):
        total += gain
        if total > best:
            best, threshold = total, (margin + below) / 2
    return threshold


def normalize_answer(text: str) -> str:
    """The text in lower case, without ASCII punctuation and articles, with single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def _true_answers(answers: Sequence[str]) -> list[str]:
    """The normalized answers. As in the official v2 script, answers of only articles and punctuation are left out."""
    return list(filter(None, map(normalize_answer, answers))) or [""]


def _best_overlap(answers: Sequence[str], answer: str) -> float:
    return max(_overlap(true, normalize_answer(answer)) for true in _true_answers(answers))


def _overlap(true: str, answer: str) -> float:
    """F1 over words; for an empty text, 1 if both are empty, else 0."""
    expected, words = true.split(), answer.split()
    if not expected or not words:
        return float(expected == words)
    both = sum((Counter(expected) & Counter(words)).values())
    return 2 * both / (len(expected) + len(words))


def _percent(values: Sequence[float]) -> float:
    return 100 * sum(values) / len(values)


def interval(score: Callable[[Counts], float], count: int, *, seed: int = 0) -> tuple[float, float]:
    """A percentile bootstrap interval: it contains 95% of the scores of 1,000 samples.

    A sample is `count` indices below `count`, drawn with replacement; `score` returns the score of these examples. The
    interval covers the choice of examples, not the random seed of training.
    """
    if count < 1:
        raise InputError(f"an interval needs at least one example, got {count}")
    generator = np.random.default_rng(seed)
    scores = [score(generator.integers(count, size=count)) for _ in range(ROUNDS)]
    low, high = np.quantile(scores, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def mean_interval(values: Sequence[float] | Values, *, seed: int = 0) -> tuple[float, float]:
    """The interval of a mean, such as accuracy."""
    array = np.asarray(values, dtype=np.float64)
    return interval(lambda chosen: float(array[chosen].mean()), len(array), seed=seed)
