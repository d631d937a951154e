"""Metrics of predictions, in percent: labels, values, entities, answers, and bootstrap intervals.

Plain Python and numpy on lists of true and predicted values. A new metric is one function here and one entry in the
dictionary that its `*_scores` function returns; reports and pages show every entry. An undefined score (0 / 0) is 0.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError, suggest

POSITIVE = ("1", "true", "yes", "spam", "positive")  # usual names of the positive class, in any case
ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
ROUNDS, LEVEL = 1000, 0.95  # of bootstrap intervals
SAMPLED_AT_ONCE = 1 << 21  # indices in memory

Counts = NDArray[np.int64]
Values = NDArray[np.float64]
Array = NDArray[Any]  # of counts, also of several samples
LABEL_SCORES = ("accuracy", "f1", "macro_f1", "mcc")


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
    if positive is None and len(labels) <= 2:
        positive = choose_positive_label(truth, labels)
    ids = {label: index for index, label in enumerate(labels)}
    table = confusion_matrix([ids[label] for label in truth], [ids[label] for label in predicted], len(labels))
    scores = confusion_scores(np.diag(table), table.sum(0), table.sum(1))
    scores["f1"] = scores["macro_f1"]
    if positive is not None:
        scores["f1"] = scores["each_f1"][ids[positive]] if positive in ids else 0.0
    return {name: float(scores[name]) for name in LABEL_SCORES}


def confusion_matrix(truth: Sequence[int] | Counts, predicted: Sequence[int] | Counts, size: int) -> Counts:
    """Counts of pairs of label ids: true labels are rows, predicted ones columns."""
    table = np.zeros((size, size), dtype=np.int64)
    np.add.at(table, (np.asarray(truth, dtype=np.int64), np.asarray(predicted, dtype=np.int64)), 1)
    return table


def confusion_scores(correct: Array, predicted: Array, true: Array) -> dict[str, Any]:
    """Scores in percent from counts of labels, (..., labels): correct, predicted and true examples of each label.

    `precision`, `recall` and `each_f1` have a value per label; `accuracy`, `macro_f1` (over the labels that occur),
    `weighted_f1` (by true examples) and `mcc` are those of all labels.
    """
    precision, recall, f1 = precision_recall_f1(correct, predicted, true)
    total = true.sum(-1)
    occurring = (predicted + true > 0).sum(-1)
    # Matthews' correlation coefficient for any number of classes (Gorodkin 2004, the R_K statistic).
    accuracy = correct.sum(-1) / total
    p, t = predicted / total[..., None], true / total[..., None]
    spread = (1 - (p * p).sum(-1)) * (1 - (t * t).sum(-1))
    mcc = (accuracy - (p * t).sum(-1)) / np.sqrt(np.where(spread > 0, spread, 1.0))
    return {
        "accuracy": 100 * accuracy,
        "macro_f1": f1.sum(-1) / np.maximum(occurring, 1),
        "weighted_f1": (f1 * true).sum(-1) / total,
        "mcc": 100 * np.where(spread > 0, mcc, 0.0),
        "precision": precision,
        "recall": recall,
        "each_f1": f1,
    }


def precision_recall_f1(correct: Array, predicted: Array, true: Array) -> tuple[Values, Values, Values]:
    """TP / predicted, TP / true and 2 TP / (predicted + true) in percent, of counts of any shape; 0 / 0 is 0."""
    return (
        100 * correct / np.maximum(predicted, 1),
        100 * correct / np.maximum(true, 1),
        200 * correct / np.maximum(predicted + true, 1),
    )


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
    true, guessed = memberships(truth, labels), memberships(predicted, labels)
    accuracy = float((true == guessed).all(1).mean())
    scores = membership_scores(accuracy, (true & guessed).sum(0), guessed.sum(0), true.sum(0))
    return {name: float(value) for name, value in scores.items()}


def membership_scores(accuracy: Any, correct: Array, predicted: Array, true: Array) -> dict[str, Any]:
    """The scores of `multilabel_scores` from the accuracy (0 to 1) and counts of labels, (..., labels)."""
    micro = precision_recall_f1(correct.sum(-1), predicted.sum(-1), true.sum(-1))[2]
    macro = precision_recall_f1(correct, predicted, true)[2].mean(-1)
    return {"accuracy": 100 * accuracy, "micro_f1": micro, "macro_f1": macro, "f1": micro}


def memberships(sets: Sequence[Collection[str]], labels: Sequence[str]) -> NDArray[np.bool_]:
    """Whether each example has each label, (examples, labels)."""
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
    x, y = finite(truth, "true"), finite(predicted, "predicted")
    return {
        "pearson": 100 * _correlation(x, y),
        "spearman": 100 * _correlation(_ranks(x), _ranks(y)),
    }


def difference_scores(truth: Sequence[float] | Values, predicted: Sequence[float] | Values) -> dict[str, float]:
    """`mae` (mean absolute error) and `rmse` (root of the mean squared error), in the unit of the values."""
    check_pairs(truth, predicted)
    difference = finite(predicted, "predicted") - finite(truth, "true")
    return {"mae": float(np.abs(difference).mean()), "rmse": float(np.sqrt((difference**2).mean()))}


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


def finite(values: Sequence[float] | Values, kind: str) -> Values:
    """The values as an array; InputError names the first that is not a finite number."""
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
    precision, recall, f1 = precision_recall_f1(*counts)
    return {"precision": float(precision), "recall": float(recall), "f1": float(f1)}


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
        exact[question], shared[question] = (0.0, 0.0) if answer is None else match_answer(texts, answer)
    scores = {"exact_match": _percent(list(exact.values())), "f1": _percent(list(shared.values()))}
    if without := [exact[question] for question, texts in answers.items() if not texts]:
        scores["no_answer_accuracy"] = _percent(without)
        if others := [shared[question] for question, texts in answers.items() if texts]:
            scores["has_answer_f1"] = _percent(others)
    return scores


def match_answer(answers: Sequence[str], answer: str) -> tuple[float, float]:
    """Exact match and F1 of one prediction, from 0 to 1, with its best matching true answer."""
    return float(normalize_answer(answer) in _true_answers(answers)), _best_overlap(answers, answer)


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
    return interval_of([score(chosen) for block in resamples(count, seed=seed) for chosen in block])


def mean_interval(values: Sequence[float] | Values, *, seed: int = 0) -> tuple[float, float]:
    """The interval of a mean, such as accuracy."""
    array = np.asarray(values, dtype=np.float64)
    means = [array[block].mean(1) for block in resamples(len(array), seed=seed)]
    return interval_of(np.concatenate(means))


def resamples(count: int, *, seed: int = 0) -> Iterator[Counts]:
    """The samples of a bootstrap in blocks: indices of examples, (samples, count)."""
    if count < 1:
        raise InputError(f"an interval needs at least one example, got {count}")
    generator = np.random.default_rng(seed)
    size = max(1, SAMPLED_AT_ONCE // count)
    for start in range(0, ROUNDS, size):
        yield generator.integers(count, size=(min(size, ROUNDS - start), count))


def resampled_counts(groups: Counts, *, seed: int = 0) -> Values:
    """How often each group occurs in each sample, (1,000, groups); `groups` has the number of each example's group."""
    size, counts = int(groups.max(initial=0)) + 1, []
    for block in resamples(len(groups), seed=seed):
        cells = groups[block] + size * np.arange(len(block))[:, None]
        counts.append(np.bincount(cells.reshape(-1), minlength=size * len(block)).reshape(-1, size))
    return np.concatenate(counts).astype(np.float64)


def resampled_sums(rows: Array, *, seed: int = 0) -> Values:
    """Sums over the examples of each sample, (1,000, columns), of rows of numbers, (examples, columns)."""
    different, groups = np.unique(rows, axis=0, return_inverse=True)
    sums: Values = resampled_counts(groups.reshape(-1), seed=seed) @ different
    return sums


def interval_of(scores: Sequence[float] | Values) -> tuple[float, float]:
    """The percentile interval of the scores of samples."""
    low, high = np.quantile(scores, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
