"""All the checks that apply to a model and its data, and the quick ones of data that every training run begins with.

Knows which check needs what. Opens models; reads no data and prints nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.checkpoints import loading
from regard.checkpoints.ready import evaluation_mode
from regard.data.examples import Choice, Example, Picture, Question, Text
from regard.data.readers import Read
from regard.errors import InputError
from regard.models import Bert, Gpt, Vit
from regard.tasks.base import Task
from regard.tasks.catalog import task_named
from regard.tasks.folder import Solved, is_solved, read_task
from regard.tasks.pictures import Frame
from regard.tasks.rows import Row, Rows
from regard.tasks.solve import stream
from regard.text import Tokenizer
from regard.text.settings import Settings
from regard.training.doctor.columns import wrong_columns
from regard.training.doctor.data import class_imbalance, label_noise, leakage, spaced
from regard.training.doctor.findings import CHECKS, Finding, skipped
from regard.training.doctor.model import constant_predictions, dropout_on, missing_mask, packed, padded, wrong_segments
from regard.training.doctor.pictures import look, quick_look
from regard.training.doctor.reading import casing, texts_of, truncation

__all__ = ["Subject", "examine", "quick", "subject_named"]

SAMPLE = 200  # examples to predict for: enough to see that all but a few get one answer
PAIRS = 16
LONG = 64  # texts that make a row as long as rows can be
DATA = ("casing mismatch", "labels truncated away", "train/dev leakage", "class imbalance", "label noise by duplicates")


@dataclass(frozen=True, eq=False)
class Subject:
    """What is examined. `solved` is None for a model that was tuned for nothing; `inputs` is what its folder tells
    other software to feed it, empty where it does not say."""

    encoder: Bert | Gpt | Vit
    tokenizer: Tokenizer | None
    solved: Solved | None = None
    inputs: tuple[str, ...] = ()

    def task(self, name: str | None) -> str:
        """The name of the task: the one it was tuned for, or that it is meant for."""
        if self.solved is None:
            return task_named(name or "classify").name
        tuned = self.solved.task.name
        if name not in (None, tuned):
            raise InputError(f"the model was tuned for the task {tuned}, not for {name}; leave --task out")
        return tuned


def subject_named(name: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> Subject:
    """A tuned folder or a pretrained model, to examine."""
    folder = loading.find_folder(name)
    inputs = Settings.open(folder).inputs
    solved = read_task(folder, device=device) if is_solved(folder) else None
    encoder, tokenizer = (
        loading.load(folder, device=device) if solved is None else (solved.model.encoder, solved.tokenizer)
    )
    if isinstance(encoder, Vit):
        if solved is None:
            raise InputError(f"{name} looks at pictures and was not tuned for their classes; examine it once it is")
        return Subject(encoder, None, solved)
    if tokenizer is None or not isinstance(encoder, Bert | Gpt):
        what = type(encoder).__name__ + ("" if tokenizer else " without a tokenizer")
        raise InputError(f"{name}: expected a BERT or a GPT with its tokenizer, found a {what}; examine another model")
    return Subject(encoder, tokenizer, solved, inputs)


def examine(
    subject: Subject,
    data: Read[Any],
    *,
    train: Read[Any] | None = None,
    task: str | None = None,
    device: torch.device | None = None,
) -> list[Finding]:
    """A finding for each of the ten mistakes. `data` is what the model is judged on and `train` what it learned from,
    both labelled; `task` is needed where the model was tuned for none, and then is classify by default."""
    encoder, tokenizer, solved = subject.encoder, subject.tokenizer, subject.solved
    name = subject.task(task)
    device = device or torch.device("cpu")
    pictures = isinstance(data.examples[0], Picture)
    if pictures is not isinstance(encoder, Vit):
        looks, holds = ("text", "pictures") if pictures else ("pictures", "text")
        raise InputError(f"the model was made for {looks}, and {data.path} holds {holds}; give it what it was made for")
    if isinstance(encoder, Vit) or tokenizer is None:
        assert solved is not None
        return look(solved, train, data, device=device)
    found = {finding.check: finding for finding in [wrong_columns(_files(train, data), labels=_labels(solved))]}
    sound = found["wrong columns"].status != "error"
    kind: Task[Any] | None = solved.task if solved else None
    if kind is None and sound:
        kind = task_named(name).learn((train or data).examples)
    positions = encoder.config.max_position_embeddings
    length = solved.length if solved else min(task_named(name).length, positions)
    rows = Rows(tokenizer, family=encoder.config.family, limit=length)
    for finding in _model(subject, rows, data.examples):
        found[finding.check] = finding
    if sound and kind is not None:
        for finding in _data(kind, train, data, rows):
            found[finding.check] = finding
        found["constant predictions"] = _constant(solved, data.examples, device)
    why = "the columns look wrong: mend them first"
    return [found.get(check) or skipped(check, why) for check in CHECKS]


def quick(task: Task[Any], train: Read[Any], dev: Read[Any], rows: Rows | Frame) -> list[Finding]:
    """The checks that need no model: well under a second for some thousand examples."""
    if isinstance(rows, Frame):
        return quick_look(train, dev, rows)
    columns = wrong_columns(_files(train, dev), labels=task.labels if task.name != "regress" else ())
    return [columns] if columns.status == "error" else [columns, *_data(task, train, dev, rows)]


def _data(task: Task[Any], train: Read[Any] | None, data: Read[Any], rows: Rows) -> list[Finding]:
    learned = train or data
    return [
        casing(rows.tokenizer, texts_of(learned.examples)),
        truncation(task, learned.examples, rows),
        leakage(train, data) if train else skipped("train/dev leakage", "give the training data too, with --train"),
        class_imbalance(learned),
        label_noise(learned),
    ]


def _model(subject: Subject, rows: Rows, examples: Sequence[Example]) -> list[Finding]:
    encoder = subject.encoder
    whole = subject.solved.model if subject.solved else encoder
    some = texts_of(examples)
    made = sorted(rows.whole([(text, None) for text in some if text.strip()] or [("a", None)]), key=len)
    long = rows.whole([(" ".join(some[:LONG]), None)])[0]
    dropout = dropout_on(whole, packed(encoder), made[0])
    with evaluation_mode(whole):  # so that what dropout does is not taken for another mistake
        asks = {"padded": padded(encoder, padding=rows.tokenizer.pad or 0), "packed": packed(encoder)}
        mask = missing_mask(asks, made[0], long, inputs=subject.inputs)
        if not isinstance(encoder, Bert) or encoder.config.type_vocab_size < 2:
            segments = skipped("wrong segment ids", "the model has no segments")
        else:
            needed, pairs = _pairs(examples, rows)
            segments = wrong_segments(asks["packed"], pairs, needed=needed, inputs=subject.inputs)
    return [mask, segments, dropout]


def _pairs(examples: Sequence[Example], rows: Rows) -> tuple[bool, list[Row]]:
    """Whether the examples are pairs, and rows of some as the task has them; or of texts that stand side by side."""
    some = spaced(examples, PAIRS)
    if isinstance(some[0], Question):
        tokens = rows.tokens(
            [text for one in some if isinstance(one, Question) for text in (one.question, one.context)]
        )
        room = rows.limit // 2 - 2
        parts = zip(tokens[::2], tokens[1::2], strict=True)
        return True, [rows.question(question.ids[:room], context.ids[:room])[0] for question, context in parts]
    pairs: list[tuple[str, str | None]] = []
    for one in some:
        if isinstance(one, Text) and one.second is not None:
            pairs.append((one.text, one.second))
        elif isinstance(one, Choice):
            pairs.append((one.text, one.endings[0]))
    if pairs:
        return True, rows.whole(pairs)
    texts = [text for text in texts_of(some) if text]
    return False, rows.whole(list(zip(texts, reversed(texts), strict=True)) or [("a", "a")])


def _constant(solved: Solved | None, examples: Sequence[Example], device: torch.device) -> Finding:
    if solved is None:
        return skipped("constant predictions", "the model was tuned for no task, so it predicts nothing")
    some = spaced(examples, SAMPLE)
    return constant_predictions(some, list(stream(solved, some, device=device)))


def _files(train: Read[Any] | None, data: Read[Any]) -> list[Read[Any]]:
    return [data] if train is None else [train, data]


def _labels(solved: Solved | None) -> tuple[str, ...]:
    return solved.task.labels if solved and solved.task.name != "regress" else ()
