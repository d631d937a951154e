"""Which layer of a model is best for a task: every layer, the six rows of the lecture and a learned mix.

Each text goes through the frozen model once; probing heads are then trained on the stored hidden states.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, cast, get_args

import torch
from pydantic import BaseModel, Field
from torch import nn

from regard.data.examples import TaggedExample, TextExample
from regard.errors import check_choice
from regard.events import Progress
from regard.inference.embedding.embedder import load_engine
from regard.interpret.probes.layer_combinations import (
    DECK,
    DECK_NOTE,
    LayerCombination,
    deck_combinations,
    scalar_mix,
    single_layers,
)
from regard.interpret.probes.probe_heads import BiLstmHeads, LayerFeatures, LinearHeads
from regard.interpret.probes.probe_training import BILSTM, LINEAR, fit, predict, standardize
from regard.interpret.probes.probing_task import ProbingTask, classification_task, tagging_task
from regard.render.result import Result
from regard.wording import truncation_note

if TYPE_CHECKING:
    from regard.checkpoints.loaded_model import LoadedModel

HeadKind = Literal["linear", "bilstm"]
METRICS = {"f1": "Entity F1", "accuracy": "Accuracy"}


class LayerScore(BaseModel):
    """The score of a combination of layers in percent, and its 95% bootstrap interval.

    `deck` is the score in the lecture's table, for another model and head, if the task is tagging entities.
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
    page_view: ClassVar[None] = None

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
        metric = METRICS[self.metric]
        lines = [
            f"{metric} on {self.dev:,} examples, heads trained on {self.train:,}; layers of {self.model}",
            "",
            f"{'every layer':30}{'linear':>8}   95% interval   weight in the mix",
            *(f"{row.line()}{weight:20.3f}" for row, weight in zip(self.layers, self.mix, strict=True)),
            "",
            f"{'combinations':30}{self.head:>8}   95% interval{'    the deck' if self.task == 'tag' else ''}",
            *(row.line() + (f"{row.deck:12.1f}" if row.deck is not None else "") for row in self.rows),
        ]
        return "\n".join([*lines, "", DECK_NOTE] if self.task == "tag" else lines)

    def to_table(self) -> tuple[list[str], list[list[object]]]:
        rows: list[list[object]] = [
            [one.name, one.operation, " ".join(map(str, one.layers)), one.head, one.score, one.low, one.high]
            for one in [*self.layers, *self.rows]
        ]
        return ["name", "operation", "layers", "head", self.metric, "low", "high"], rows


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
    check_choice("head", head, get_args(HeadKind))
    check_choice("pooling", pooling, ("mean", "cls"))
    tags = bool(train) and isinstance(train[0], TaggedExample)
    device = next((parameter.device.type for parameter in loaded.model.parameters()), "cpu")
    engine = load_engine(
        (loaded.model, loaded.tokenizer),
        layers="concat(0:)",
        pooling="none" if tags or head == "bilstm" else pooling,
        device=device,
    )
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
    while True:
        try:
            done += next(reading)
        except StopIteration as end:
            task: ProbingTask = end.value
            break
        yield Progress(stage="reading", done=min(done, total), total=total)
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
        deck = DECK.get(one.name) if task.task == "tag" else None
        scores.append(
            LayerScore(
                name=one.name,
                operation=one.operation,
                layers=one.layers,
                head=head,
                score=score,
                low=low,
                high=high,
                deck=deck,
            )
        )
    return scores, features.weights
