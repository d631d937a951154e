"""Probing tasks: the tags of words or the classes of texts, as hidden states, targets and a score."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from regard.data.examples import TaggedExample, TextExample
from regard.errors import InputError
from regard.inference.embedding.engine import EmbeddingEngine
from regard.interpret.probes.hidden_states import (
    HiddenStates,
    split_long_sentences,
    text_states,
    token_states,
    word_states,
)
from regard.tasks.metrics import entity_counts, interval, mean_interval, scores_of_counts

Classes = NDArray[np.int64]
Score = Callable[[Classes], tuple[float, float, float]]


@dataclass(frozen=True, eq=False)
class ProbingTask:
    """`single` (train, dev): one item per example, for linear heads. `sequences`: items in order, for a BiLSTM.

    `targets` are the classes of the train items; `score` returns the score of predicted dev classes in percent and its
    95% interval. With `pooled` a sequence has one class, not one per item. `parted` counts additional parts of long
    sentences.
    """

    task: str
    metric: str
    classes: list[str]
    targets: Classes
    single: tuple[HiddenStates, HiddenStates]
    sequences: tuple[HiddenStates, HiddenStates] | None
    pooled: bool
    score: Score
    unseen: list[str]
    parted: int


def tagging_task(
    engine: EmbeddingEngine, train: Sequence[TaggedExample], dev: Sequence[TaggedExample], *, seed: int
) -> Generator[int, None, ProbingTask]:
    """Words and their tags; the score is the entity F1. Yields numbers of texts that the model has read."""
    train_tags, dev_tags = _tags(train, "train"), _tags(dev, "dev")
    classes, unseen = _classes(list(chain(*train_tags)), list(chain(*dev_tags)))
    class_index = {name: index for index, name in enumerate(classes)}
    parts = [split_long_sentences(engine, examples) for examples in (train, dev)]
    train_states = yield from word_states(engine, parts[0])
    dev_states = yield from word_states(engine, parts[1])

    def score(predicted: Classes) -> tuple[float, float, float]:
        names = iter([classes[one] for one in predicted])
        counts = entity_counts(dev_tags, [[next(names) for _ in tags] for tags in dev_tags])

        def f1(chosen: Classes) -> float:
            return scores_of_counts(counts[chosen].sum(0))["f1"]

        return f1(np.arange(len(counts))), *interval(f1, len(counts), seed=seed)

    return ProbingTask(
        task="tag",
        metric="f1",
        classes=classes,
        targets=np.array([class_index[tag] for tag in chain(*train_tags)]),
        single=(_single_items(train_states), _single_items(dev_states)),
        sequences=(train_states, dev_states),
        pooled=False,
        score=score,
        unseen=unseen,
        parted=sum(map(len, parts)) - len(train) - len(dev),
    )


def classification_task(
    engine: EmbeddingEngine,
    train: Sequence[TextExample],
    dev: Sequence[TextExample],
    *,
    pooling: str,
    sequences: bool,
    seed: int,
) -> Generator[int, None, ProbingTask]:
    """Texts and their labels; the score is accuracy. With `sequences` the tokens are kept, for a BiLSTM.

    Yields numbers of texts that the model has read.
    """
    train_labels, dev_labels = _labels(train, "train"), _labels(dev, "dev")
    classes, unseen = _classes(train_labels, dev_labels)
    class_index = {name: index for index, name in enumerate(classes)}
    states = []
    for examples in (train, dev):
        texts = [example.text for example in examples]
        states.append((yield from (token_states if sequences else text_states)(engine, texts)))
    single = [_pool(one, pooling) for one in states] if sequences else states

    def score(predicted: Classes) -> tuple[float, float, float]:
        hits = np.array([100.0 * (classes[one] == name) for one, name in zip(predicted, dev_labels, strict=True)])
        return float(hits.mean()), *mean_interval(hits, seed=seed)

    return ProbingTask(
        task="classify",
        metric="accuracy",
        classes=classes,
        targets=np.array([class_index[name] for name in train_labels]),
        single=(single[0], single[1]),
        sequences=(states[0], states[1]) if sequences else None,
        pooled=True,
        score=score,
        unseen=unseen,
        parted=0,
    )


def _classes(train: Sequence[str], dev: Sequence[str]) -> tuple[list[str], list[str]]:
    """The classes of train, and those that only dev has."""
    classes = sorted({*train})
    if len(classes) < 2:
        raise InputError(f"all of the training data has the label {classes[0]!r}; expected two labels or more")
    return classes, sorted({*dev} - {*classes})


def _tags(examples: Sequence[TaggedExample], side: str) -> list[tuple[str, ...]]:
    if not examples:
        raise InputError(f"the {side} data has no sentences; expected at least one")
    for number, example in enumerate(examples, 1):
        if example.tags is None or not example.words:
            raise InputError(f"sentence {number} of the {side} data has no {'tags' if example.words else 'words'}")
    return [example.tags or () for example in examples]


def _labels(examples: Sequence[TextExample], side: str) -> list[str]:
    if not examples:
        raise InputError(f"the {side} data has no texts; expected at least one")
    labels = []
    for number, example in enumerate(examples, 1):
        if not isinstance(example, TextExample):
            raise InputError(f"example {number} of the {side} data is a {type(example).__name__}; expected a text")
        if not isinstance(example.label, str) or example.text_pair is not None:
            raise InputError(
                f"example {number} of the {side} data has the label {example.label!r}"
                f"{' and a second text' if example.text_pair is not None else ''}; expected one text with one label"
            )
        labels.append(example.label)
    return labels


def _single_items(states: HiddenStates) -> HiddenStates:
    return HiddenStates(states.values, (1,) * states.values.shape[1])


def _pool(states: HiddenStates, pooling: str) -> HiddenStates:
    """One vector per example: of its first token, or the mean."""
    lengths = np.array(states.lengths)
    starts = np.cumsum(lengths) - lengths
    if pooling == "cls":
        values = states.values[:, starts]
    else:
        totals = [np.add.reduceat(layer.astype(np.float32), starts) for layer in states.values]
        values = (np.stack(totals) / lengths[:, None]).astype(np.float16)
    return HiddenStates(values, (1,) * len(states.lengths))
