"""Which layer of a model is best for a task: every layer, the lecture's six rows and a learned mix, from one reading.

Every text goes through the frozen model once; heads are then trained on what was kept. What is asked is in `subjects`,
the heads are in `heads`, their training in `fitting`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch
from torch import nn

from regard.data.examples import TaggedExample, TextExample
from regard.errors import check_choice
from regard.inference.embedding.embedder import load_engine
from regard.interpret.probes.combinations import DECK, Combination, each_layer, of_the_deck, scalar_mix
from regard.interpret.probes.fitting import BILSTM, LINEAR, fit, predict, standardise
from regard.interpret.probes.heads import BiLstmHeads, Features, LinearHeads
from regard.interpret.probes.subjects import Subject, classifying, tagging
from regard.text import Tokenizer

__all__ = ["Head", "LayerReport", "Row", "score_layers"]

Head = Literal["linear", "bilstm"]
Progress = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much


@dataclass(frozen=True)
class Row:
    """The score of a combination of layers in percent, and the bootstrap's 95% interval.

    `deck` is what the lecture's table has in that row: of another model and head, for entities alone.
    """

    name: str
    operation: str
    layers: tuple[int, ...]
    head: Head
    score: float
    low: float
    high: float
    deck: float | None = None


@dataclass(frozen=True)
class LayerReport:
    """`layers` has every layer under a linear head; `rows` the lecture's six and the mix under the head asked for.

    `mix` are the weights that the mix gave the layers, which add up to 1. `unseen` are labels of dev that train has
    not. `cut` texts were longer than the model reads and lost their ends; of sentences to tag nothing is lost, they are
    read in `parted` more parts.
    """

    task: str
    metric: str
    head: Head
    train: int
    dev: int
    layers: list[Row]
    rows: list[Row]
    mix: list[float]
    unseen: list[str]
    cut: int
    parted: int
    seconds_reading: float
    seconds_heads: float


def score_layers(
    model: str | os.PathLike[str] | tuple[nn.Module, Tokenizer | None],
    train: Sequence[TaggedExample] | Sequence[TextExample],
    dev: Sequence[TaggedExample] | Sequence[TextExample],
    *,
    head: Head = "linear",
    pooling: str = "mean",
    seed: int = 0,
    device: str = "auto",
    on_progress: Progress | None = None,
) -> LayerReport:
    """Train heads on the layers of a frozen model and score them on dev: F1 of entities, or accuracy of texts.

    `pooling` ("mean" or "cls") makes one vector of a text's tokens for a linear head. A word's vector is that of its
    first piece. A BiLSTM reads the words, or all tokens of a text.
    """
    check_choice("head", head, get_args(Head))
    check_choice("pooling", pooling, ("mean", "cls"))
    tags = bool(train) and isinstance(train[0], TaggedExample)
    whole = "none" if tags or head == "bilstm" else pooling
    ready = load_engine(model, layers="concat(0:)", pooling=whole, device=device)
    begin, total, finished = time.perf_counter(), len(train) + len(dev), 0

    def done(more: int) -> None:
        nonlocal finished
        finished += more
        if on_progress is not None:
            on_progress("reading", min(finished, total), total)

    if tags:
        subject = tagging(
            ready, cast("Sequence[TaggedExample]", train), cast("Sequence[TaggedExample]", dev), seed=seed, done=done
        )
    else:
        subject = classifying(
            ready,
            cast("Sequence[TextExample]", train),
            cast("Sequence[TextExample]", dev),
            pooling=pooling,
            sequences=head == "bilstm",
            seed=seed,
            done=done,
        )
    read = time.perf_counter()
    layers, rows, mix = _scored(subject, head, seed=seed, device=ready.device, on_progress=on_progress)
    return LayerReport(
        task=subject.task,
        metric=subject.metric,
        head=head,
        train=len(train),
        dev=len(dev),
        layers=layers,
        rows=rows,
        mix=mix,
        unseen=subject.unseen,
        cut=ready.truncated,
        parted=subject.parted,
        seconds_reading=read - begin,
        seconds_heads=time.perf_counter() - read,
    )


def _scored(
    subject: Subject, head: Head, *, seed: int, device: torch.device, on_progress: Progress | None
) -> tuple[list[Row], list[Row], list[float]]:
    """The rows of every layer, those of the table with the mix, and the weights of the mix."""
    count = subject.single[0].values.shape[0]
    each, table = each_layer(count), [*of_the_deck(count), scalar_mix(count)]
    if head == "linear":
        found, mix = _trained(subject, "linear", [*each, *table], seed=seed, device=device, on_progress=on_progress)
        return found[:count], found[count:], mix
    layers, _ = _trained(subject, "linear", each, seed=seed, device=device, on_progress=on_progress)
    rows, mix = _trained(subject, "bilstm", table, seed=seed, device=device, on_progress=on_progress)
    return layers, rows, mix


def _trained(
    subject: Subject,
    head: Head,
    wanted: Sequence[Combination],
    *,
    seed: int,
    device: torch.device,
    on_progress: Progress | None,
) -> tuple[list[Row], list[float]]:
    """A row for each combination; the same one under two names is trained once."""
    distinct = {(one.operation, one.chosen): one for one in wanted}
    train, dev = subject.single if head == "linear" or subject.sequences is None else subject.sequences
    layers, _, width = train.values.shape
    features = Features(list(distinct.values()), layers=layers, width=width)
    heads: nn.Module
    if head == "linear":
        heads = LinearHeads(features, len(subject.classes))
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            heads = BiLstmHeads(features, len(subject.classes), pooled=subject.pooled)
    heads.to(device)
    standardise(features, train)

    def done(step: int, steps: int) -> None:
        if on_progress is not None:
            on_progress(f"training {head} heads", step, steps)

    fit(heads, train, subject.targets, LINEAR if head == "linear" else BILSTM, seed=seed, done=done)
    scores = dict(zip(distinct, map(subject.score, predict(heads, dev)), strict=True))
    rows = [
        Row(
            one.name,
            one.operation,
            one.chosen,
            head,
            *scores[one.operation, one.chosen],
            deck=DECK.get(one.name) if subject.task == "tag" else None,
        )
        for one in wanted
    ]
    return rows, features.weights
