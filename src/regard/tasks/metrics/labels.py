"""Scores of labels: one of each example, or any number of them. In percent; what is undefined (0 / 0) is 0.

Knows names of labels. Equal to scikit-learn's functions of these names with `zero_division=0`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError, suggest
from regard.tasks.metrics.pairs import check_pairs

__all__ = ["POSITIVE", "label_scores", "multilabel_scores", "positive_label"]

POSITIVE = ("1", "true", "yes", "spam", "positive")  # what the class that is looked for is called, in any case

Counts = NDArray[np.int64]


def label_scores(truth: Sequence[str], predicted: Sequence[str], *, positive: str | None = None) -> dict[str, float]:
    """`accuracy`, `f1`, `macro_f1` (over the labels that occur in either list) and `mcc`.

    `f1` is that of the label `positive`. Where it is not given, two labels have one by their names or numbers (see
    `positive_label`), and with more than two `f1` is `macro_f1`.
    """
    check_pairs(truth, predicted)
    labels = sorted({*truth, *predicted})
    table = _confusion(truth, predicted, labels)
    each = _f1(np.diag(table), table.sum(0), table.sum(1))
    macro = float(each.mean())
    if positive is None and len(labels) <= 2:
        positive = positive_label(truth, labels)
    f1 = macro if positive is None else float(each[labels.index(positive)]) if positive in labels else 0.0
    return {
        "accuracy": 100 * float(np.trace(table) / len(truth)),
        "f1": 100 * f1,
        "macro_f1": 100 * macro,
        "mcc": 100 * _correlation(table),
    }


def positive_label(truth: Sequence[str], labels: Collection[str] = ()) -> str:
    """Which of two labels is looked for: the one that is so named (`POSITIVE`), else the rarer one in `truth`.

    Of two that are equally frequent it is the last in alphabetical order.
    """
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
    """Of examples with any number of `labels` each: `accuracy` (all labels of an example right), `micro_f1`,
    `macro_f1` (over all of `labels`), and `f1`, which is `micro_f1`.
    """
    check_pairs(truth, predicted)
    if not labels:
        raise InputError("expected the names of the labels, got none")
    right, found = _memberships(truth, labels), _memberships(predicted, labels)
    both, claimed, there = (right & found).sum(0), found.sum(0), right.sum(0)
    micro = float(_f1(both.sum(keepdims=True), claimed.sum(keepdims=True), there.sum(keepdims=True))[0])
    return {
        "accuracy": 100 * float((right == found).all(1).mean()),
        "micro_f1": 100 * micro,
        "macro_f1": 100 * float(_f1(both, claimed, there).mean()),
        "f1": 100 * micro,
    }


def _confusion(truth: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> Counts:
    """How often each label (rows) was taken for each (columns)."""
    number = {label: place for place, label in enumerate(labels)}
    table = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(table, ([number[one] for one in truth], [number[one] for one in predicted]), 1)
    return table


def _f1(both: Counts, claimed: Counts, there: Counts) -> NDArray[np.float64]:
    """2 TP / (2 TP + FP + FN), label by label."""
    scores: NDArray[np.float64] = 2 * both / np.maximum(claimed + there, 1)
    return scores


def _correlation(table: Counts) -> float:
    """Matthews' correlation coefficient for any number of classes (Gorodkin 2004, the R_K statistic)."""
    # Python's integers: the product of the two sums below outgrows 64 bits at about 50,000 examples.
    there, claimed = table.sum(1).tolist(), table.sum(0).tolist()
    total = sum(there)
    covariance = int(np.trace(table)) * total - sum(t * c for t, c in zip(there, claimed, strict=True))
    spread = (total**2 - sum(c * c for c in claimed)) * (total**2 - sum(t * t for t in there))
    return covariance / float(spread) ** 0.5 if spread else 0.0


def _memberships(sets: Sequence[Collection[str]], labels: Sequence[str]) -> NDArray[np.bool_]:
    number = {label: place for place, label in enumerate(labels)}
    table = np.zeros((len(sets), len(labels)), dtype=np.bool_)
    for row, names in enumerate(sets):
        if isinstance(names, str):
            raise InputError(f"expected the labels of example {row + 1} as a list, got {names!r}; put it in a list")
        for name in names:
            if name not in number:
                raise InputError(f"example {row + 1} has the unknown label {name!r}; {suggest(name, labels)}")
            table[row, number[name]] = True
    return table
