"""What the layers are asked about: the tags of words, or the classes of texts. What goes in, what is right, the score.

Knows examples and metrics; knows heads only as what predicts numbers of classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from regard.data.examples import TaggedExample, TextExample
from regard.errors import InputError
from regard.inference.embedding.engine import EmbeddingEngine
from regard.interpret.probes.states import Done, States, in_parts, of_texts, of_tokens, of_words
from regard.tasks.metrics import entity_counts, interval, mean_interval, scores_of_counts

__all__ = ["Subject", "classifying", "tagging"]

Classes = NDArray[np.int64]
Score = Callable[[Classes], tuple[float, float, float]]


@dataclass(frozen=True, eq=False)
class Subject:
    """`single` (train, dev): one item an example, for linear heads. `sequences`: items in order, for a BiLSTM.

    `targets` are the classes of the train items that are asked for; `score` judges the predicted classes of dev: the
    score in percent and its 95% interval. With `pooled` a sequence has one class, not one for each item.
    """

    task: str
    metric: str
    classes: list[str]
    targets: Classes
    single: tuple[States, States]
    sequences: tuple[States, States] | None
    pooled: bool
    score: Score
    unseen: list[str]
    parted: int


def tagging(
    engine: EmbeddingEngine, train: Sequence[TaggedExample], dev: Sequence[TaggedExample], *, seed: int, done: Done
) -> Subject:
    """Words and their tags; the score is the F1 of entities."""
    right, wanted = _tags(train, "train"), _tags(dev, "dev")
    classes, unseen = _classes(list(chain(*right)), list(chain(*wanted)))
    number = {name: place for place, name in enumerate(classes)}
    parts = [in_parts(engine, examples) for examples in (train, dev)]
    states = tuple(of_words(engine, examples, done=done) for examples in parts)

    def score(predicted: Classes) -> tuple[float, float, float]:
        names = iter([classes[one] for one in predicted])
        counts = entity_counts(wanted, [[next(names) for _ in tags] for tags in wanted])

        def f1(chosen: Classes) -> float:
            return scores_of_counts(counts[chosen].sum(0))["f1"]

        return f1(np.arange(len(counts))), *interval(f1, len(counts), seed=seed)

    return Subject(
        task="tag",
        metric="f1",
        classes=classes,
        targets=np.array([number[tag] for tag in chain(*right)]),
        single=(_one_by_one(states[0]), _one_by_one(states[1])),
        sequences=(states[0], states[1]),
        pooled=False,
        score=score,
        unseen=unseen,
        parted=sum(map(len, parts)) - len(train) - len(dev),
    )


def classifying(
    engine: EmbeddingEngine,
    train: Sequence[TextExample],
    dev: Sequence[TextExample],
    *,
    pooling: str,
    sequences: bool,
    seed: int,
    done: Done,
) -> Subject:
    """Texts and their labels; the score is accuracy. With `sequences` the tokens are kept, for a BiLSTM."""
    right, wanted = _labels(train, "train"), _labels(dev, "dev")
    classes, unseen = _classes(right, wanted)
    number = {name: place for place, name in enumerate(classes)}
    sides = [[example.text for example in examples] for examples in (train, dev)]
    if sequences:
        kept = tuple(of_tokens(engine, texts, done=done) for texts in sides)
        single = tuple(_pooled(states, pooling) for states in kept)
    else:
        single = tuple(of_texts(engine, texts, done=done) for texts in sides)

    def score(predicted: Classes) -> tuple[float, float, float]:
        hits = np.array([100.0 * (classes[one] == name) for one, name in zip(predicted, wanted, strict=True)])
        return float(hits.mean()), *mean_interval(hits, seed=seed)

    return Subject(
        task="classify",
        metric="accuracy",
        classes=classes,
        targets=np.array([number[name] for name in right]),
        single=(single[0], single[1]),
        sequences=(kept[0], kept[1]) if sequences else None,
        pooled=True,
        score=score,
        unseen=unseen,
        parted=0,
    )


def _classes(train: Sequence[str], dev: Sequence[str]) -> tuple[list[str], list[str]]:
    """The classes to learn, and those of dev that cannot be learned."""
    classes = sorted({*train})
    if len(classes) < 2:
        raise InputError(f"all of the training data has the label {classes[0]!r}; expected two labels or more")
    return classes, sorted({*dev} - {*classes})


def _tags(examples: Sequence[TaggedExample], side: str) -> list[tuple[str, ...]]:
    if not examples:
        raise InputError(f"the {side} data has no sentences; expected at least one")
    for place, example in enumerate(examples, 1):
        if example.tags is None or not example.words:
            raise InputError(f"sentence {place} of the {side} data has no {'tags' if example.words else 'words'}")
    return [example.tags or () for example in examples]


def _labels(examples: Sequence[TextExample], side: str) -> list[str]:
    if not examples:
        raise InputError(f"the {side} data has no texts; expected at least one")
    labels = []
    for place, example in enumerate(examples, 1):
        if not isinstance(example, TextExample):
            raise InputError(f"example {place} of the {side} data is a {type(example).__name__}; expected a text")
        if not isinstance(example.label, str) or example.second is not None:
            raise InputError(
                f"example {place} of the {side} data has the label {example.label!r}"
                f"{' and a second text' if example.second is not None else ''}; expected one text with one label"
            )
        labels.append(example.label)
    return labels


def _one_by_one(states: States) -> States:
    return States(states.values, (1,) * states.values.shape[1])


def _pooled(states: States, pooling: str) -> States:
    """One vector for each example: of its first token, or the mean."""
    lengths = np.array(states.lengths)
    starts = np.cumsum(lengths) - lengths
    if pooling == "cls":
        values = states.values[:, starts]
    else:
        totals = [np.add.reduceat(layer.astype(np.float32), starts) for layer in states.values]
        values = (np.stack(totals) / lengths[:, None]).astype(np.float16)
    return States(values, (1,) * len(states.lengths))
