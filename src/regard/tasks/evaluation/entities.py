"""Evaluation of entities: per type, by nervaluate's schemes, and what was taken for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from regard.tasks.evaluation.calibration import calibrate_event
from regard.tasks.evaluation.labels import class_scores
from regard.tasks.evaluation.parts import (
    ClassScores,
    Confusion,
    ConfusionMatrix,
    ErrorCase,
    SchemeScores,
    TaskEvaluation,
)
from regard.tasks.metrics import Entity, entities, entity_counts, interval_of, precision_recall_f1, resampled_sums
from regard.wording import count_of

SCHEMES = ("strict", "exact", "partial", "type")
MISSED, SPURIOUS = "(missed)", "(spurious)"


class EntityMatch(NamedTuple):
    """A true entity and the predicted one that is compared with it; either may be missing."""

    true: Entity | None
    predicted: Entity | None
    outcome: str  # correct, incorrect, partial, missed, spurious


def match_entities(true: Sequence[Entity], predicted: Sequence[Entity], scheme: str = "strict") -> list[EntityMatch]:
    """Compare the entities of a sentence as nervaluate does.

    strict: span and type must be right. exact: the span. partial: the span, or half a point for an overlap. type: the
    type, with any overlap. Each true entity is compared with one prediction at most.
    """
    free = list(true)
    matches = []
    for guess in predicted:
        overlapping = [one for one in free if one.start < guess.end and guess.start < one.end]
        found = next(iter(sorted(overlapping, key=lambda one: _rank(one, guess, scheme))), None)
        if found is None:
            matches.append(EntityMatch(None, guess, "spurious"))
            continue
        free.remove(found)
        wrong = "partial" if scheme == "partial" else "incorrect"
        matches.append(EntityMatch(found, guess, "correct" if _is_correct(found, guess, scheme) else wrong))
    return matches + [EntityMatch(one, None, "missed") for one in free]


def _is_correct(true: Entity, guess: Entity, scheme: str) -> bool:
    same_span = (true.start, true.end) == (guess.start, guess.end)
    if scheme == "type":
        return true.label == guess.label
    return same_span and (scheme != "strict" or true.label == guess.label)


def _rank(true: Entity, guess: Entity, scheme: str) -> tuple[bool, int]:
    """Correct ones first; for types those with the nearest ends; else in order of the sentence."""
    correct = _is_correct(true, guess, scheme)
    distance = abs(true.start - guess.start) + abs(true.end - guess.end) if scheme == "type" and correct else 0
    return not correct, distance


def scheme_scores(truth: Sequence[Sequence[Entity]], predicted: Sequence[Sequence[Entity]]) -> list[SchemeScores]:
    """The scores of all sentences by each scheme."""
    result = []
    for scheme in SCHEMES:
        counts = Counter(
            match.outcome
            for true, guesses in zip(truth, predicted, strict=True)
            for match in match_entities(true, guesses, scheme)
        )
        correct, incorrect, partial, missed, spurious = (
            counts[name] for name in ("correct", "incorrect", "partial", "missed", "spurious")
        )
        found, possible = correct + incorrect + partial + spurious, correct + incorrect + partial + missed
        scores = precision_recall_f1(np.array(correct + partial / 2), np.array(found), np.array(possible))
        result.append(SchemeScores(scheme, correct, incorrect, partial, missed, spurious, *map(float, scores)))
    return result


def evaluate_entities(
    truth: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    texts: Sequence[Sequence[str]],
    probabilities: Sequence[Sequence[float]],
    *,
    metrics: Mapping[str, float],
    seed: int = 0,
) -> TaskEvaluation:
    """Evaluate tags: the true and predicted ones of each sentence, its words, and the probability of each predicted
    entity. Intervals are those of samples of sentences."""
    true, guessed = [entities(tags) for tags in truth], [entities(tags) for tags in predicted]
    matches = [match_entities(*pair) for pair in zip(true, guessed, strict=True)]
    words = np.array(
        [[sum(a == b for a, b in zip(*tags, strict=True)), len(tags[0])] for tags in zip(truth, predicted, strict=True)]
    )
    sums = resampled_sums(np.concatenate([entity_counts(truth, predicted), words], 1), seed=seed)
    sampled = dict(zip(("precision", "recall", "f1"), precision_recall_f1(*sums[:, :3].T), strict=True))
    sampled["accuracy"] = 100 * sums[:, 3] / np.maximum(sums[:, 4], 1)
    intervals = {name: interval_of(sampled[name]) for name in metrics}
    types = sorted({one.label for sentence in (*true, *guessed) for one in sentence})
    errors = []
    certain: list[float] = []
    right: list[bool] = []
    for index, sentence in enumerate(matches):
        by_entity = dict(zip(guessed[index], probabilities[index], strict=True))
        for match in sentence:
            confidence = None if match.predicted is None else by_entity[match.predicted]
            if confidence is not None:
                certain.append(confidence)
                right.append(match.outcome == "correct")
            if match.outcome != "correct":
                label, guess = (_format_entity(match.true, texts[index]), _format_entity(match.predicted, texts[index]))
                errors.append(ErrorCase(index, label, guess, confidence, kind=_kind(match)))
    errors.sort(key=lambda error: -1.0 if error.confidence is None else error.confidence, reverse=True)
    kinds = Counter(error.kind for error in errors)
    matrix = _type_matrix(matches, types)
    total, found = sum(map(len, true)), sum(right)
    return TaskEvaluation(
        metrics=dict(metrics),
        intervals=intervals,
        finding=(
            f"F1 is {metrics['f1']:.1f} (95% interval: {intervals['f1'][0]:.1f} to {intervals['f1'][1]:.1f}): of "
            f"{total:,} entities in {count_of(len(truth), 'sentence')}, {found:,} are found with the right type and "
            "ends."
        ),
        remarks=[f"Errors: {', '.join(f'{count:,} {kind}' for kind, count in kinds.most_common())}."] if kinds else [],
        classes=_type_scores(true, guessed, types),
        confusion_matrix=matrix,
        confusions=_type_confusions(matrix),
        calibration=calibrate_event(np.array(right), np.array(certain), of="predicted entities") if right else None,
        schemes=scheme_scores(true, guessed),
        errors=errors,
    )


def _type_scores(
    true: Sequence[Sequence[Entity]], guessed: Sequence[Sequence[Entity]], types: Sequence[str]
) -> list[ClassScores]:
    support = Counter(one.label for sentence in true for one in sentence)
    predicted = Counter(one.label for sentence in guessed for one in sentence)
    correct = Counter(one.label for pair in zip(true, guessed, strict=True) for one in {*pair[0]} & {*pair[1]})
    counts = (np.array([count[label] for label in types]) for count in (correct, predicted, support))
    return class_scores(types, *counts)


def _type_matrix(matches: Sequence[Sequence[EntityMatch]], types: Sequence[str]) -> ConfusionMatrix:
    """Types of true entities and of predictions that overlap them."""
    rows, columns = [*types, SPURIOUS], [*types, MISSED]
    counts = [[0] * len(columns) for _ in rows]
    for sentence in matches:
        for match in sentence:
            row = rows.index(SPURIOUS if match.true is None else match.true.label)
            counts[row][columns.index(MISSED if match.predicted is None else match.predicted.label)] += 1
    return ConfusionMatrix(rows, columns, counts)


def _type_confusions(matrix: ConfusionMatrix) -> list[Confusion]:
    pairs = [
        Confusion(row, column, count)
        for row, counts in zip(matrix.rows, matrix.counts, strict=True)
        for column, count in zip(matrix.columns, counts, strict=True)
        if count and row != column
    ]
    return sorted(pairs, key=lambda pair: -pair.count)


def _kind(match: EntityMatch) -> str:
    if match.true is None or match.predicted is None:
        return match.outcome
    if match.true.label == match.predicted.label:
        return "wrong end"
    return "wrong type" if match.true[1:] == match.predicted[1:] else "wrong type and end"


def _format_entity(entity: Entity | None, words: Sequence[str]) -> str:
    return "" if entity is None else f"{entity.label}: {' '.join(words[entity.start : entity.end])}"
