"""Entities in tagged words, and their scores: an entity counts where its label and both its ends are right.

Knows IOB2 tags of words, not words themselves. A tag I-X that no B-X opened begins an entity, as conlleval has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError
from regard.tasks.metrics.pairs import check_pairs

__all__ = ["Entity", "EntityScores", "entities", "entity_counts", "entity_scores", "scores_of_counts"]


class Entity(NamedTuple):
    """The words [start, end) of a sentence."""

    label: str
    start: int
    end: int


class EntityScores(TypedDict):
    """In percent. `accuracy` is that of the tags, word by word; `by_label` has precision, recall and f1 of each."""

    precision: float
    recall: float
    f1: float
    accuracy: float
    by_label: dict[str, dict[str, float]]


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of one sentence, in order."""
    found: list[Entity] = []
    label, start = "", 0  # the entity that is open, if its label is not empty
    for place, tag in enumerate([*tags, "O"]):
        prefix, name = _parts(tag, place)
        if label and not (prefix == "I" and name == label):
            found.append(Entity(label, start, place))
            label = ""
        if name and not label:
            label, start = name, place
    return found


def entity_scores(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> EntityScores:
    """Over all entities of all sentences together (micro); for each label that occurs in either, too."""
    right, found = _read(truth, predicted)
    labels = sorted({one.label for sentence in (*right, *found) for one in sentence})
    total = scores_of_counts(_counts(right, found).sum(0))
    pairs = [(a, b) for one, other in zip(truth, predicted, strict=True) for a, b in zip(one, other, strict=True)]
    return {
        "precision": total["precision"],
        "recall": total["recall"],
        "f1": total["f1"],
        "accuracy": 100 * sum(a == b for a, b in pairs) / max(len(pairs), 1),
        "by_label": {
            label: scores_of_counts(_counts(_only(label, right), _only(label, found)).sum(0)) for label in labels
        },
    }


def entity_counts(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """For each sentence how many entities are found and right, were found, and are there: (n, 3)."""
    return _counts(*_read(truth, predicted))


def scores_of_counts(counts: NDArray[np.int64]) -> dict[str, float]:
    """`precision`, `recall` and `f1` of the sum of what `entity_counts` gives, (3,)."""
    right, found, there = (float(number) for number in counts)
    return {
        "precision": 100 * right / max(found, 1),
        "recall": 100 * right / max(there, 1),
        "f1": 200 * right / max(found + there, 1),
    }


def _read(
    truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> tuple[list[list[Entity]], list[list[Entity]]]:
    check_pairs(truth, predicted)
    for number, (right, found) in enumerate(zip(truth, predicted, strict=True), 1):
        if len(right) != len(found):
            raise InputError(f"sentence {number} has {len(right)} words, but {len(found)} tags were predicted for it")
    return [entities(tags) for tags in truth], [entities(tags) for tags in predicted]


def _counts(truth: Sequence[Sequence[Entity]], predicted: Sequence[Sequence[Entity]]) -> NDArray[np.int64]:
    rows = [(len({*right} & {*found}), len(found), len(right)) for right, found in zip(truth, predicted, strict=True)]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _only(label: str, sentences: Sequence[Sequence[Entity]]) -> list[list[Entity]]:
    return [[one for one in sentence if one.label == label] for sentence in sentences]


def _parts(tag: str, place: int) -> tuple[str, str]:
    """B-LOC -> B, LOC; a name may have hyphens of its own."""
    if tag == "O":
        return "O", ""
    prefix, _, name = tag.partition("-")
    if prefix not in ("B", "I") or not name:
        raise InputError(f"word {place + 1} has the tag {tag!r}; expected O, or B- or I- and a label, such as B-LOC")
    return prefix, name
