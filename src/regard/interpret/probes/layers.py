"""Which layer of a model is best for a task: every layer, the six rows of the lecture and a learned mix.

Each text goes through the frozen model once; probing heads are then trained on the stored hidden states.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Literal, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field, computed_field
from torch import nn

from regard.checkpoints.loaded_model import LoadedModel
from regard.data.examples import TaggedExample, TextExample
from regard.errors import InputError
from regard.events import Progress, map_events
from regard.inference.embedding.engine import EmbeddingEngine, load_engine
from regard.interpret.probes.probe_heads import (
    BILSTM,
    DECK,
    DECK_NOTE,
    LINEAR,
    BiLstmHeads,
    HiddenStates,
    LayerCombination,
    LayerFeatures,
    LinearHeads,
    deck_combinations,
    fit,
    predict,
    scalar_mix,
    single_layers,
    split_long_sentences,
    standardize,
    text_states,
    token_states,
    word_states,
)
from regard.nn.masks import Packed
from regard.nn.pooling import pool
from regard.render.result import Result
from regard.tasks.metrics import entity_counts, interval, mean_interval, scores_of_counts
from regard.wording import truncation_note

T = TypeVar("T")
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
    """Texts and their labels; the score is accuracy. With `sequences` all tokens are stored, for a BiLSTM.

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


def text_labels(examples: Sequence[TextExample], where: str = "") -> list[str]:
    """The label of each example; InputError unless each is one text with one label. `where` names the data."""
    for number, example in enumerate(examples, 1):
        if not isinstance(example, TextExample):
            raise InputError(f"example {number}{where} is a {type(example).__name__}; expected a text with a label")
        if not isinstance(example.label, str) or example.text_pair is not None:
            fault = "two texts" if example.text_pair is not None else f"the label {example.label!r}"
            raise InputError(f"example {number}{where} has {fault}; expected one text with one label")
    return [str(example.label) for example in examples]


def _labels(examples: Sequence[TextExample], side: str) -> list[str]:
    if not examples:
        raise InputError(f"the {side} data has no texts; expected at least one")
    return text_labels(examples, f" of the {side} data")


def _single_items(states: HiddenStates) -> HiddenStates:
    return HiddenStates(states.values, (1,) * states.values.shape[1])


def _pool(states: HiddenStates, pooling: str) -> HiddenStates:
    """One vector per example: of its first token, or the mean."""
    layout = Packed.from_lengths(states.lengths)
    values = np.stack([pool(torch.from_numpy(layer), layout, pooling).half().numpy() for layer in states.values])
    return HiddenStates(values, (1,) * len(states.lengths))


HeadKind = Literal["linear", "bilstm"]
METRICS = {"f1": "Entity F1", "accuracy": "Accuracy"}


class LayerScore(BaseModel):
    """The score of a combination of layers in percent, and its 95% bootstrap interval.

    `deck` is the entity F1 in the lecture's table, for another model, head and, unless entities are tagged, task.
    """

    name: str
    operation: str
    layers: tuple[int, ...]
    head: HeadKind
    score: float
    low: float
    high: float
    deck: float | None = None

    def line(self) -> str:
        return f"{self.name:30}{self.score:8.2f}   {self.low:5.2f} - {self.high:5.2f}"


class LayersResult(Result):
    """`layers` has every layer under a linear head; `rows` the six combinations and the mix under the requested head.

    `mix` are the weights of the layers in the mix, which add up to 1. `unseen` are labels of dev that train lacks.
    `cut` texts were longer than the model reads and were truncated; long sentences to tag are read in `parted` more
    parts.
    """

    model: str
    task: str
    metric: str
    head: HeadKind
    train: int
    dev: int
    layers: list[LayerScore]
    rows: list[LayerScore]
    mix: list[float]
    unseen: list[str]
    cut: int
    parted: int
    seconds_reading: float = Field(exclude=True)
    seconds_heads: float = Field(exclude=True)
    page_view: ClassVar[str | None] = "layers"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def deck_note(self) -> str:
        return DECK_NOTE

    @computed_field  # type: ignore[prop-decorator]
    @property
    def notes(self) -> list[str]:
        notes = []
        if self.unseen:
            notes.append(f"dev has labels that train lacks and no head can predict: {', '.join(self.unseen)}")
        if self.cut:
            notes.append(truncation_note(self.cut))
        if self.parted:
            notes.append(f"sentences longer than the model reads were read in parts: {self.parted:,} more")
        return notes

    def to_text(self) -> str:
        metric, tags = METRICS[self.metric], self.task == "tag"
        lines = [
            f"{metric} on {self.dev:,} examples, heads trained on {self.train:,}; layers of {self.model}",
            "",
            f"{'every layer':30}{'linear':>8}   95% interval   weight in the mix",
            *(f"{row.line()}{weight:20.3f}" for row, weight in zip(self.layers, self.mix, strict=True)),
            "",
            f"{'combinations':30}{self.head:>8}   95% interval{'    the deck' if tags else ''}",
            *(row.line() + (f"{row.deck:12.1f}" if row.deck is not None and tags else "") for row in self.rows),
        ]
        return "\n".join([*lines, "", DECK_NOTE] if tags else lines)

    def to_table(self) -> tuple[list[str], list[list[object]]]:
        rows: list[list[object]] = [
            [one.name, one.operation, " ".join(map(str, one.layers)), one.head, one.score, one.low, one.high]
            for one in [*self.layers, *self.rows]
        ]
        return ["name", "operation", "layers", "head", self.metric, "low", "high"], rows


def hold_out(examples: Sequence[T], *, seed: int) -> tuple[list[T], list[T]]:
    """Split examples at random into those to train on, and a quarter of them to score on."""
    count = round(len(examples) / 4)
    if not 0 < count < len(examples):
        raise InputError(f"expected at least 4 examples to hold out a part of them, got {len(examples)}; give dev data")
    order = np.random.default_rng(seed).permutation(len(examples)).tolist()
    return [examples[index] for index in order[count:]], [examples[index] for index in order[:count]]


def score_layers(
    loaded: LoadedModel,
    train: Sequence[TaggedExample] | Sequence[TextExample],
    dev: Sequence[TaggedExample] | Sequence[TextExample],
    *,
    head: HeadKind = "linear",
    pooling: str = "mean",
    seed: int = 0,
) -> Generator[Progress, None, LayersResult]:
    """Train heads on the layers of a frozen model and score them on dev: entity F1, or accuracy of texts.

    `pooling` ("mean" or "cls") makes one vector of a text's tokens for a linear head. The vector of a word is that of
    its first piece. A BiLSTM reads the words, or all tokens of a text.
    """
    tags = bool(train) and isinstance(train[0], TaggedExample)
    pooling_used = "none" if tags or head == "bilstm" else pooling
    engine = load_engine(LoadedModel("", *loaded), layers="concat(0:)", pooling=pooling_used)
    start, total, done = time.perf_counter(), len(train) + len(dev), 0
    if tags:
        sides = cast("Sequence[TaggedExample]", train), cast("Sequence[TaggedExample]", dev)
        reading = tagging_task(engine, *sides, seed=seed)
    else:
        reading = classification_task(
            engine,
            cast("Sequence[TextExample]", train),
            cast("Sequence[TextExample]", dev),
            pooling=pooling,
            sequences=head == "bilstm",
            seed=seed,
        )

    def progress(read: int) -> Progress:
        nonlocal done
        done += read
        return Progress(stage="reading", done=min(done, total), total=total)

    task = yield from map_events(reading, progress)
    read = time.perf_counter()
    count = task.single[0].values.shape[0]
    each, table = single_layers(count), [*deck_combinations(count), scalar_mix(count)]
    if head == "linear":
        scores, mix = yield from _train_heads(task, "linear", [*each, *table], seed=seed, device=engine.device)
        layers, rows = scores[:count], scores[count:]
    else:
        layers, _ = yield from _train_heads(task, "linear", each, seed=seed, device=engine.device)
        rows, mix = yield from _train_heads(task, "bilstm", table, seed=seed, device=engine.device)
    return LayersResult(
        model=loaded.name,
        task=task.task,
        metric=task.metric,
        head=head,
        train=len(train),
        dev=len(dev),
        layers=layers,
        rows=rows,
        mix=mix,
        unseen=task.unseen,
        cut=engine.truncated,
        parted=task.parted,
        seconds_reading=read - start,
        seconds_heads=time.perf_counter() - read,
    )


def _train_heads(
    task: ProbingTask, head: HeadKind, combinations: Sequence[LayerCombination], *, seed: int, device: torch.device
) -> Generator[Progress, None, tuple[list[LayerScore], list[float]]]:
    """A score per combination, and the weights of the mix; equal combinations with two names are trained once."""
    distinct = {(one.operation, one.layers): one for one in combinations}
    train, dev = task.single if head == "linear" or task.sequences is None else task.sequences
    layers, _, width = train.values.shape
    features = LayerFeatures(list(distinct.values()), layers=layers, width=width)
    heads: nn.Module
    if head == "linear":
        heads = LinearHeads(features, len(task.classes))
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            heads = BiLstmHeads(features, len(task.classes), pooled=task.pooled)
    heads.to(device)
    standardize(features, train)
    for step, steps in fit(heads, train, task.targets, LINEAR if head == "linear" else BILSTM, seed=seed):
        yield Progress(stage=f"training {head} heads", done=step, total=steps, unit="steps")
    intervals = dict(zip(distinct, map(task.score, predict(heads, dev)), strict=True))
    scores = []
    for one in combinations:
        score, low, high = intervals[one.operation, one.layers]
        scores.append(LayerScore(**vars(one), head=head, score=score, low=low, high=high, deck=DECK.get(one.name)))
    return scores, features.weights
