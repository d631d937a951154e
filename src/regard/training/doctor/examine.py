"""Runs all checks that apply to a model and its data, and the data checks that every fine-tuning run begins with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.checkpoints import loading
from regard.checkpoints.loaded_model import LoadedModel
from regard.data.examples import ChoiceExample, Example, ImageExample, QuestionExample, TextExample
from regard.data.readers import ExampleSet
from regard.errors import InputError
from regard.models import Bert, Gpt, Vit
from regard.nn.evaluation import evaluation_mode
from regard.tasks.image_classification import ImageTransform
from regard.tasks.inputs import InputBuilder, InputSequence
from regard.tasks.predict import predict_stream
from regard.tasks.registry import get_task
from regard.tasks.task import Task
from regard.tasks.task_folder import FineTunedModel
from regard.text import Tokenizer
from regard.text.tokenizer_config import TokenizerConfig
from regard.training.doctor.data import class_imbalance, label_noise, leakage, spaced, wrong_columns
from regard.training.doctor.findings import CHECKS, DoctorFinding, skipped
from regard.training.doctor.model import constant_predictions, dropout_on, missing_mask, packed, padded, wrong_segments
from regard.training.doctor.pictures import look, quick_look
from regard.training.doctor.reading import casing, texts_of, truncation

__all__ = ["ExaminedModel", "examine", "examine_data", "examined_model"]

SAMPLE = 200  # examples to predict for: enough to see that all but a few get one answer
PAIRS = 16
LONG = 64  # texts that make a row as long as rows can be
DATA = ("casing mismatch", "labels truncated away", "train/dev leakage", "class imbalance", "label noise by duplicates")


@dataclass(frozen=True, eq=False)
class ExaminedModel:
    """The model to examine. `solved` is None if it is not fine-tuned; `inputs` are its folder's `model_input_names`."""

    encoder: Bert | Gpt | Vit
    tokenizer: Tokenizer | None
    solved: FineTunedModel | None = None
    inputs: tuple[str, ...] = ()

    def task(self, name: str | None) -> str:
        """The name of the task: that of a fine-tuned model, else the one that is meant."""
        if self.solved is None:
            return get_task(name or "classify").name
        tuned = self.solved.task.name
        if name not in (None, tuned):
            raise InputError(f"the model is fine-tuned for the task {tuned}, not for {name}; leave --task out")
        return tuned


def examined_model(loaded: LoadedModel) -> ExaminedModel:
    """A fine-tuned or pretrained model, to examine."""
    name, encoder, tokenizer, solved = loaded.name, loaded.model, loaded.tokenizer, loaded.fine_tuned
    folder = Path(os.path.expanduser(name)) if os.path.isdir(os.path.expanduser(name)) else loading.find_folder(name)
    inputs = TokenizerConfig.open(folder).inputs
    if isinstance(encoder, Vit):
        if solved is None:
            raise InputError(f"{name} reads images and is not fine-tuned for classes; examine it after fine-tuning")
        return ExaminedModel(encoder, None, solved)
    if tokenizer is None or not isinstance(encoder, Bert | Gpt):
        what = type(encoder).__name__ + ("" if tokenizer else " without a tokenizer")
        raise InputError(f"{name}: expected a BERT or a GPT with its tokenizer, found a {what}; examine another model")
    return ExaminedModel(encoder, tokenizer, solved, inputs)


def examine(
    subject: ExaminedModel,
    data: ExampleSet[Any],
    *,
    train: ExampleSet[Any] | None = None,
    task: str | None = None,
) -> list[DoctorFinding]:
    """A finding for each of the ten checks, on labeled data to evaluate on and to train on.

    `task` is needed if the model is not fine-tuned; classify by default.
    """
    encoder, tokenizer, solved = subject.encoder, subject.tokenizer, subject.solved
    name = subject.task(task)
    device = next(encoder.parameters()).device
    images = isinstance(data.examples[0], ImageExample)
    if images is not isinstance(encoder, Vit):
        reads, holds = ("text", "images") if images else ("images", "text")
        raise InputError(f"the model reads {reads}, and {data.path} holds {holds}; give it {reads}")
    if isinstance(encoder, Vit) or tokenizer is None:
        assert solved is not None
        return look(solved, train, data, device=device)
    found = {finding.check: finding for finding in [wrong_columns(_files(train, data), labels=_labels(solved))]}
    sound = found["wrong columns"].status != "error"
    kind: Task[Any] | None = solved.task if solved else None
    if kind is None and sound:
        kind = get_task(name).from_examples((train or data).examples)
    positions = encoder.config.max_position_embeddings
    length = solved.length if solved else min(get_task(name).max_length, positions)
    rows = InputBuilder(tokenizer, family=encoder.config.family, max_length=length)
    for finding in _model(subject, rows, data.examples):
        found[finding.check] = finding
    if sound and kind is not None:
        for finding in _data(kind, train, data, rows):
            found[finding.check] = finding
        found["constant predictions"] = _constant(solved, data.examples, device)
    why = "the columns look wrong: correct them first"
    return [found.get(check) or skipped(check, why) for check in CHECKS]


def examine_data(
    task: Task[Any], train: ExampleSet[Any], dev: ExampleSet[Any], rows: InputBuilder | ImageTransform
) -> list[DoctorFinding]:
    """The checks that need no model; they take well under a second for thousands of examples."""
    if isinstance(rows, ImageTransform):
        return quick_look(train, dev, rows)
    columns = wrong_columns(_files(train, dev), labels=task.classes)
    return [columns] if columns.status == "error" else [columns, *_data(task, train, dev, rows)]


def _data(
    task: Task[Any], train: ExampleSet[Any] | None, data: ExampleSet[Any], rows: InputBuilder
) -> list[DoctorFinding]:
    learned = train or data
    return [
        casing(rows.tokenizer, texts_of(learned.examples)),
        truncation(task, learned.examples, rows),
        leakage(train, data) if train else skipped("train/dev leakage", "give the training data too, with --train"),
        class_imbalance(learned),
        label_noise(learned),
    ]


def _model(subject: ExaminedModel, rows: InputBuilder, examples: Sequence[Example]) -> list[DoctorFinding]:
    encoder = subject.encoder
    whole = subject.solved.model if subject.solved else encoder
    some = texts_of(examples)
    made = sorted(rows.sequences([(text, None) for text in some if text.strip()] or [("a", None)]), key=len)
    long = rows.sequences([(" ".join(some[:LONG]), None)])[0]
    dropout = dropout_on(whole, packed(encoder), made[0])
    with evaluation_mode(whole):  # dropout must not look like another mistake
        asks = {"padded": padded(encoder, padding=rows.tokenizer.pad or 0), "packed": packed(encoder)}
        mask = missing_mask(asks, made[0], long, inputs=subject.inputs)
        if not isinstance(encoder, Bert) or encoder.config.type_vocab_size < 2:
            segments = skipped("wrong segment ids", "the model has no segments")
        else:
            needed, pairs = _pairs(examples, rows)
            segments = wrong_segments(asks["packed"], pairs, needed=needed, inputs=subject.inputs)
    return [mask, segments, dropout]


def _pairs(examples: Sequence[Example], rows: InputBuilder) -> tuple[bool, list[InputSequence]]:
    """Whether the examples are pairs, and sequences of some of them; else pairs of neighboring texts."""
    some = spaced(examples, PAIRS)
    if isinstance(some[0], QuestionExample):
        tokens = rows.tokens(
            [text for one in some if isinstance(one, QuestionExample) for text in (one.question, one.context)]
        )
        room = rows.max_length // 2 - 2
        parts = zip(tokens[::2], tokens[1::2], strict=True)
        return True, [rows.question(question.ids[:room], context.ids[:room])[0] for question, context in parts]
    pairs: list[tuple[str, str | None]] = []
    for one in some:
        if isinstance(one, TextExample) and one.text_pair is not None:
            pairs.append((one.text, one.text_pair))
        elif isinstance(one, ChoiceExample):
            pairs.append((one.text, one.endings[0]))
    if pairs:
        return True, rows.sequences(pairs)
    texts = [text for text in texts_of(some) if text]
    return False, rows.sequences(list(zip(texts, reversed(texts), strict=True)) or [("a", "a")])


def _constant(solved: FineTunedModel | None, examples: Sequence[Example], device: torch.device) -> DoctorFinding:
    if solved is None:
        return skipped("constant predictions", "the model is not fine-tuned, so it makes no predictions")
    some = spaced(examples, SAMPLE)
    return constant_predictions(some, list(predict_stream(solved, some, device=device)))


def _files(train: ExampleSet[Any] | None, data: ExampleSet[Any]) -> list[ExampleSet[Any]]:
    return [data] if train is None else [train, data]


def _labels(solved: FineTunedModel | None) -> tuple[str, ...]:
    return solved.task.classes if solved else ()
