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
from regard.nn.training import evaluation_mode
from regard.tasks.image_classification import ImageTransform
from regard.tasks.inputs import InputBuilder, InputSequence
from regard.tasks.predict import predict_stream
from regard.tasks.registry import get_task
from regard.tasks.task import Task
from regard.tasks.task_folder import FineTunedModel
from regard.text import Tokenizer
from regard.text.tokenizer_folder import TokenizerConfig
from regard.training.doctor.data import class_imbalance, label_noise, leakage, spaced, wrong_columns
from regard.training.doctor.findings import CHECKS, DoctorFinding, skipped
from regard.training.doctor.model import constant_predictions, dropout_on, missing_mask, packed, padded, wrong_segments
from regard.training.doctor.pictures import look, quick_look
from regard.training.doctor.reading import casing, texts_of, truncation

SAMPLE = 200  # examples to predict: enough to notice that nearly all predictions are equal
PAIRS = 16
LONG = 64  # texts that are joined to a sequence of maximum length
DATA = ("casing mismatch", "labels truncated away", "train/dev leakage", "class imbalance", "label noise by duplicates")


@dataclass(frozen=True, eq=False)
class ExaminedModel:
    """A model to examine. `fine_tuned` is None if it is only pretrained; `inputs` are its `model_input_names`."""

    encoder: Bert | Gpt | Vit
    tokenizer: Tokenizer | None
    fine_tuned: FineTunedModel | None = None
    inputs: tuple[str, ...] = ()

    def task(self, name: str | None) -> str:
        """The name of the task: that of a fine-tuned model, otherwise `name` or classify."""
        if self.fine_tuned is None:
            return get_task(name or "classify").name
        own_name = self.fine_tuned.task.name
        if name not in (None, own_name):
            raise InputError(f"the model is fine-tuned for the task {own_name}, not for {name}; leave --task out")
        return own_name


def examined_model(loaded: LoadedModel) -> ExaminedModel:
    """Prepare a fine-tuned or pretrained model for `examine`."""
    name, encoder, tokenizer, fine_tuned = loaded.name, loaded.model, loaded.tokenizer, loaded.fine_tuned
    folder = Path(os.path.expanduser(name)) if os.path.isdir(os.path.expanduser(name)) else loading.find_folder(name)
    inputs = TokenizerConfig.open(folder).inputs
    if isinstance(encoder, Vit):
        if fine_tuned is None:
            raise InputError(f"{name} reads images and is not fine-tuned for classes; examine it after fine-tuning")
        return ExaminedModel(encoder, None, fine_tuned)
    if tokenizer is None or not isinstance(encoder, Bert | Gpt):
        what = type(encoder).__name__ + ("" if tokenizer else " without a tokenizer")
        raise InputError(f"{name}: expected a BERT or a GPT with its tokenizer, found a {what}; examine another model")
    return ExaminedModel(encoder, tokenizer, fine_tuned, inputs)


def examine(
    subject: ExaminedModel,
    data: ExampleSet[Any],
    *,
    train: ExampleSet[Any] | None = None,
    task: str | None = None,
) -> list[DoctorFinding]:
    """One finding for each of the ten checks, with labeled evaluation data and, optionally, training data.

    `task` names the task of a pretrained model; the default is classify.
    """
    encoder, tokenizer, fine_tuned = subject.encoder, subject.tokenizer, subject.fine_tuned
    name = subject.task(task)
    device = next(encoder.parameters()).device
    images = isinstance(data.examples[0], ImageExample)
    if images is not isinstance(encoder, Vit):
        reads, holds = ("text", "images") if images else ("images", "text")
        raise InputError(f"the model reads {reads}, and {data.path} holds {holds}; give it {reads}")
    if isinstance(encoder, Vit) or tokenizer is None:
        assert fine_tuned is not None
        return look(fine_tuned, train, data, device=device)
    columns = wrong_columns(_files(train, data), labels=fine_tuned.task.classes if fine_tuned else ())
    findings = {columns.check: columns}
    kind: Task[Any] | None = fine_tuned.task if fine_tuned else None
    if kind is None and columns.status != "error":
        kind = get_task(name).from_examples((train or data).examples)
    positions = encoder.config.max_position_embeddings
    length = fine_tuned.length if fine_tuned else min(get_task(name).max_length, positions)
    rows = InputBuilder(tokenizer, family=encoder.config.family, max_length=length)
    findings |= {finding.check: finding for finding in _model(subject, rows, data.examples)}
    if columns.status != "error" and kind is not None:
        findings |= {finding.check: finding for finding in _data(kind, train, data, rows)}
        findings["constant predictions"] = _constant(fine_tuned, data.examples, device)
    why = "the columns look wrong: correct them first"
    return [findings.get(check) or skipped(check, why) for check in CHECKS]


def examine_data(
    task: Task[Any], train: ExampleSet[Any], dev: ExampleSet[Any], rows: InputBuilder | ImageTransform
) -> list[DoctorFinding]:
    """The checks that need no model; they take less than a second for thousands of examples."""
    if isinstance(rows, ImageTransform):
        return quick_look(train, dev, rows)
    columns = wrong_columns(_files(train, dev), labels=task.classes)
    return [columns] if columns.status == "error" else [columns, *_data(task, train, dev, rows)]


def _data(
    task: Task[Any], train: ExampleSet[Any] | None, data: ExampleSet[Any], rows: InputBuilder
) -> list[DoctorFinding]:
    trained_on = train or data
    return [
        casing(rows.tokenizer, texts_of(trained_on.examples)),
        truncation(task, trained_on.examples, rows),
        leakage(train, data) if train else skipped("train/dev leakage", "give the training data too, with --train"),
        class_imbalance(trained_on),
        label_noise(trained_on),
    ]


def _model(subject: ExaminedModel, rows: InputBuilder, examples: Sequence[Example]) -> list[DoctorFinding]:
    encoder = subject.encoder
    whole = subject.fine_tuned.model if subject.fine_tuned else encoder
    texts = texts_of(examples)
    short = min(rows.sequences([(text, None) for text in texts if text.strip()] or [("a", None)]), key=len)
    long = rows.sequences([(" ".join(texts[:LONG]), None)])[0]
    dropout = dropout_on(whole, packed(encoder), short)
    with evaluation_mode(whole):  # dropout must not look like another mistake
        layouts = {"padded": padded(encoder, padding=rows.tokenizer.pad_token_id or 0), "packed": packed(encoder)}
        mask = missing_mask(layouts, short, long, inputs=subject.inputs)
        if not isinstance(encoder, Bert) or encoder.config.type_vocab_size < 2:
            segments = skipped("wrong segment ids", "the model has no segments")
        else:
            needed, pairs = _pairs(examples, rows)
            segments = wrong_segments(layouts["packed"], pairs, needed=needed, inputs=subject.inputs)
    return [mask, segments, dropout]


def _pairs(examples: Sequence[Example], rows: InputBuilder) -> tuple[bool, list[InputSequence]]:
    """Whether the examples are pairs, and sequences of some of them; otherwise sequences of two single texts."""
    sample = spaced(examples, PAIRS)
    if isinstance(sample[0], QuestionExample):
        tokens = rows.tokens(
            [text for item in sample if isinstance(item, QuestionExample) for text in (item.question, item.context)]
        )
        room = rows.max_length // 2 - 2
        parts = zip(tokens[::2], tokens[1::2], strict=True)
        return True, [rows.question(question.ids[:room], context.ids[:room])[0] for question, context in parts]
    pairs: list[tuple[str, str | None]] = []
    for example in sample:
        if isinstance(example, TextExample) and example.text_pair is not None:
            pairs.append((example.text, example.text_pair))
        elif isinstance(example, ChoiceExample):
            pairs.append((example.text, example.endings[0]))
    if pairs:
        return True, rows.sequences(pairs)
    texts = [text for text in texts_of(sample) if text]
    return False, rows.sequences(list(zip(texts, reversed(texts), strict=True)) or [("a", "a")])


def _constant(fine_tuned: FineTunedModel | None, examples: Sequence[Example], device: torch.device) -> DoctorFinding:
    if fine_tuned is None:
        return skipped("constant predictions", "the model is not fine-tuned, so it makes no predictions")
    sample = spaced(examples, SAMPLE)
    return constant_predictions(sample, list(predict_stream(fine_tuned, sample, device=device)))


def _files(train: ExampleSet[Any] | None, data: ExampleSet[Any]) -> list[ExampleSet[Any]]:
    return [data] if train is None else [train, data]
