"""Runs the checks that apply to a model and its data, and the data checks that every fine-tuning run begins with.

Checks of a model take a function that encodes sequences, or predictions, so they work with any model.
"""

from __future__ import annotations

import math
import os
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoints import loading
from regard.checkpoints.loaded_model import LoadedModel
from regard.data.batch import collate
from regard.data.examples import (
    ChoiceExample,
    Example,
    ImageExample,
    QuestionExample,
    TaggedExample,
    TextExample,
    is_labeled,
)
from regard.data.image_processor import ImageProcessor
from regard.data.readers import ExampleSet
from regard.errors import InputError
from regard.models.family import can, describe_model
from regard.nn.training import evaluation_mode
from regard.tasks.fine_tuned_model import FineTunedModel, predict_stream
from regard.tasks.inputs import InputBuilder, InputSequence
from regard.tasks.registry import get_task
from regard.tasks.task import Prediction, Task
from regard.text import Tokenizer
from regard.text.tokenizer_folder import TokenizerConfig
from regard.training.doctor.data import (
    casing,
    class_imbalance,
    label_noise,
    leakage,
    spaced,
    texts_of,
    truncation,
    wrong_columns,
    wrong_sizes,
)
from regard.training.doctor.findings import CHECKS, SIZES, DoctorFinding, skipped

# Encodes sequences as one batch and returns the hidden states (tokens, width) of each.
Encode = Callable[[Sequence[InputSequence]], list[Tensor]]

SAMPLE = 200  # examples to predict: enough to notice that nearly all predictions are equal
PAIRS = 16
LONG = 64  # texts that are joined to a sequence of maximum length
NOISE = 1e-3  # relative difference; rounding causes about 1e-5, a mistake far more than this
UNUSED = 1e-6  # relative difference below which an input has no effect
ENOUGH = 20  # examples, or tagged words, needed to judge predictions
ALIKE, VARIED = 0.98, 0.95  # minimum share of the most frequent prediction, maximum share of the most frequent label
FLAT = 0.05  # standard deviation of predicted numbers relative to that of the labels


@dataclass(frozen=True, eq=False)
class ExaminedModel:
    """A model to examine. `fine_tuned` is None if it is only pretrained; `inputs` are its `model_input_names`."""

    encoder: Any
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
    if can(encoder, "image"):
        if fine_tuned is None:
            raise InputError(f"{name} reads images and is not fine-tuned for classes; examine it after fine-tuning")
        return ExaminedModel(encoder, None, fine_tuned)
    if tokenizer is None or not (can(encoder, "text-encoder") or can(encoder, "causal-lm")):
        what = describe_model(encoder) + ("" if tokenizer else " without a tokenizer")
        raise InputError(f"{name}: expected a BERT or a GPT with its tokenizer, found {what}; examine another model")
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
    encoder, fine_tuned = subject.encoder, subject.fine_tuned
    name = subject.task(task)
    images = isinstance(data.examples[0], ImageExample)
    if images is not can(encoder, "image"):
        reads, holds = ("text", "images") if images else ("images", "text")
        raise InputError(f"the model reads {reads}, and {data.path} holds {holds}; give it {reads}")
    if subject.tokenizer is None:
        assert fine_tuned is not None and isinstance(fine_tuned.input_builder, ImageProcessor)
        findings = _data_findings(fine_tuned.task, train, data, fine_tuned.input_builder)
        findings += [_image_dropout(fine_tuned, data), _constant(fine_tuned, data.examples)]
        checks: Sequence[str] = (*CHECKS, SIZES)
        why = "images have no tokens, words or columns"
    else:
        positions = encoder.config.max_position_embeddings
        length = fine_tuned.length if fine_tuned else min(get_task(name).max_length, positions)
        rows = InputBuilder(subject.tokenizer, family=encoder.config.family, max_length=length)
        if fine_tuned is not None and isinstance(fine_tuned.input_builder, InputBuilder):
            rows = fine_tuned.input_builder
        columns = wrong_columns(_files(train, data), labels=fine_tuned.task.classes if fine_tuned else ())
        findings = [columns, *_model(subject, rows, data.examples)]
        if columns.status != "error":
            kind = fine_tuned.task if fine_tuned else get_task(name).from_examples((train or data).examples)
            findings += [*_data_findings(kind, train, data, rows), _constant(fine_tuned, data.examples)]
        checks, why = CHECKS, "the columns look wrong: correct them first"
    found = {finding.check: finding for finding in findings}
    return [found.get(check) or skipped(check, why) for check in checks]


def examine_data(
    task: Task[Any], train: ExampleSet[Any], dev: ExampleSet[Any], rows: InputBuilder | ImageProcessor
) -> list[DoctorFinding]:
    """The checks that need no model; they take less than a second for thousands of examples."""
    if isinstance(rows, ImageProcessor):
        return _data_findings(task, train, dev, rows)
    columns = wrong_columns(_files(train, dev), labels=task.classes)
    return [columns] if columns.status == "error" else [columns, *_data_findings(task, train, dev, rows)]


def _data_findings(
    task: Task[Any], train: ExampleSet[Any] | None, data: ExampleSet[Any], rows: InputBuilder | ImageProcessor
) -> list[DoctorFinding]:
    trained_on = train or data
    findings = [
        leakage(train, data) if train else skipped("train/dev leakage", "give the training data too, with --train"),
        class_imbalance(trained_on),
        label_noise(trained_on),
    ]
    if isinstance(rows, ImageProcessor):
        return [*findings, wrong_sizes(_files(train, data), rows)]
    texts = texts_of(trained_on.examples)
    return [casing(rows.tokenizer, texts), truncation(task, trained_on.examples, rows), *findings]


def _image_dropout(fine_tuned: FineTunedModel, data: ExampleSet[Any]) -> DoctorFinding:
    model = fine_tuned.model
    inputs = model.collate(fine_tuned.task.preprocess(data.examples[:1], fine_tuned.input_builder))
    inputs = inputs.to(next(model.parameters()).device)
    with torch.no_grad():
        return dropout_between(model, model(inputs), model(inputs))


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
        if not _has_segments(encoder):
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


def _constant(fine_tuned: FineTunedModel | None, examples: Sequence[Example]) -> DoctorFinding:
    if fine_tuned is None:
        return skipped("constant predictions", "the model is not fine-tuned, so it makes no predictions")
    sample, device = spaced(examples, SAMPLE), next(fine_tuned.model.parameters()).device
    return constant_predictions(sample, list(predict_stream(fine_tuned, sample, device=device)))


def _files(train: ExampleSet[Any] | None, data: ExampleSet[Any]) -> list[ExampleSet[Any]]:
    return [data] if train is None else [train, data]


def missing_mask(
    layouts: Mapping[str, Encode], short: InputSequence, long: InputSequence, *, inputs: Sequence[str] = ()
) -> DoctorFinding:
    """Whether the hidden states of a text change with the other texts of its batch.

    `layouts` encode sequences in different batch layouts; `inputs` is the folder's `model_input_names`, if it has any.
    """
    check = "missing mask"
    if len(short) == len(long):
        return skipped(check, f"all sequences have {len(short)} tokens, so there is no padding")
    changes = {name: _change(encode([short])[0], encode([short, long])[0]) for name, encode in layouts.items()}
    worst = max(changes, key=changes.__getitem__)
    evidence = f"the vectors of a text of {len(short)} tokens change by {changes[worst]:.1g} of their largest value "
    evidence += f"when {worst} in a batch with a text of {len(long)}"
    if changes[worst] > NOISE:
        return DoctorFinding(check, "error", evidence, "pass the attention mask to the model, also in training")
    if inputs and "attention_mask" not in inputs:
        evidence += f"; but tokenizer_config.json has model_input_names {', '.join(inputs)}"
        remedy = (
            'add "attention_mask" to model_input_names: without it, transformers and other software pad without a mask'
        )
        return DoctorFinding(check, "warning", evidence, remedy)
    return DoctorFinding(check, "ok", evidence)


def wrong_segments(
    encode: Encode, pairs: Sequence[InputSequence], *, needed: bool, inputs: Sequence[str] = ()
) -> DoctorFinding:
    """Whether pairs have segment ids 0 and then 1, and whether the model uses them. `needed`: the task has pairs."""
    check = "wrong segment ids"
    wrong = [row for row in pairs if row.segments != sorted(row.segments) or set(row.segments) != {0, 1}]
    if wrong:
        segments = "".join(map(str, wrong[0].segments[:40]))
        evidence = f"{len(wrong):,} of {len(pairs):,} pairs have segment ids other than 0s and then 1s: {segments}"
        remedy = "correct the post_processor of tokenizer.json: the second text and its [SEP] have type_id 1"
        return DoctorFinding(check, "error" if needed else "warning", evidence, remedy)
    row = pairs[0]
    change = _change(encode([row])[0], encode([replace(row, segments=[0] * len(row))])[0])
    evidence = f"the vectors of a pair change by {change:.1g} of their largest value when all its segment ids are 0"
    if inputs and "token_type_ids" not in inputs:
        evidence += f"; but tokenizer_config.json has model_input_names {', '.join(inputs)}"
        remedy = 'add "token_type_ids" to model_input_names: without it, other software gives both texts the segment 0'
        return DoctorFinding(check, "warning", evidence, remedy)
    if change < UNUSED and needed:
        remedy = "the model does not distinguish the two texts: its segment embeddings are equal or unused"
        return DoctorFinding(check, "warning", evidence, remedy)
    return DoctorFinding(check, "ok", evidence)


def dropout_on(model: nn.Module, encode: Encode, row: InputSequence) -> DoctorFinding:
    """Whether outputs are random, as they should be only in training. `encode` must not change the training mode."""
    return dropout_between(model, encode([row])[0], encode([row])[0])


def dropout_between(model: nn.Module, first: Tensor, second: Tensor) -> DoctorFinding:
    """Compare two outputs of the model for the same input."""
    check = "dropout left on"
    change = _change(first, second)
    training = [name or type(model).__name__ for name, part in model.named_modules() if part.training]
    evidence = f"two runs on the same input differ by {change:.1g} of the largest value"
    if training:
        evidence += f"; {len(training):,} modules are in training mode, such as {training[0]}"
    if change <= NOISE and not training:
        return DoctorFinding(check, "ok", evidence)
    return DoctorFinding(
        check, "error" if change > NOISE else "warning", evidence, "call model.eval() before predicting"
    )


def constant_predictions(examples: Sequence[Example], predictions: Sequence[Prediction]) -> DoctorFinding:
    """Whether (nearly) all predictions are equal although the labels differ."""
    check = "constant predictions"
    known = [pair for pair in zip(examples, predictions, strict=True) if is_labeled(pair[0])]
    if len(known) < ENOUGH:
        return skipped(check, f"{len(known)} labeled examples are too few; at least {ENOUGH} are needed")
    remedy = "lower training.learning_rate, train longer, or check the labels: the model ignores its input"
    first = known[0][0]
    if isinstance(first, TaggedExample):
        true, predicted = (sum(tag != "O" for tags in column for tag in tags) for column in _tags(known))
        evidence = f"{predicted:,} words are tagged, and {true:,} should be"
        constant = true >= ENOUGH and predicted <= (1 - ALIKE) * true
    elif isinstance(first, TextExample) and isinstance(first.label, float):
        labels = [example.label for example, _ in known if isinstance(example, TextExample)]
        truth = statistics.pstdev([label for label in labels if isinstance(label, float)])
        key = "value" if "value" in known[0][1] else "score"
        spread = statistics.pstdev([prediction[key] for _, prediction in known])
        evidence = f"the standard deviation of the predictions is {spread:.2g}, that of the labels {truth:.2g}"
        constant = spread < FLAT * truth
    else:
        value, most = Counter(_predicted_label(prediction) for _, prediction in known).most_common(1)[0]
        highest = Counter(_true_label(example) for example, _ in known).most_common(1)[0][1]
        evidence = f"{most:,} of {len(known):,} predictions are {value!r}; the most frequent label has {highest:,}"
        constant = most >= ALIKE * len(known) and highest <= VARIED * len(known)
    return DoctorFinding(check, "error" if constant else "ok", evidence, remedy if constant else "")


def padded(encoder: nn.Module, *, padding: int = 0) -> Encode:
    """Encode with padding and a mask, as other software does."""

    def encode(rows: Sequence[InputSequence]) -> list[Tensor]:
        device = next(encoder.parameters()).device
        batch = collate([row.ids for row in rows], packed=False, padding=padding).to(device)
        width = batch.ids.shape[1]
        segments = torch.tensor([row.segments + [0] * (width - len(row)) for row in rows], device=device)
        with torch.no_grad():
            hidden = _hidden(encoder, batch.ids, batch.layout, segments)
        return [vectors[: len(row)].float().cpu() for vectors, row in zip(hidden, rows, strict=True)]

    return encode


def packed(encoder: nn.Module) -> Encode:
    """Encode with packed sequences, as Regard does."""

    def encode(rows: Sequence[InputSequence]) -> list[Tensor]:
        device = next(encoder.parameters()).device
        batch = collate([row.ids for row in rows]).to(device)
        segments = torch.tensor([segment for row in rows for segment in row.segments], device=device)
        with torch.no_grad():
            hidden = _hidden(encoder, batch.ids, batch.layout, segments)
        return list(torch.split(hidden.float().cpu(), [len(row) for row in rows]))

    return encode


def _hidden(encoder: nn.Module, ids: Tensor, layout: Any, segments: Tensor) -> Tensor:
    hidden: Tensor = encoder(ids, layout, segments) if _has_segments(encoder) else encoder(ids, layout)
    return hidden


def _has_segments(encoder: nn.Module) -> bool:
    return can(encoder, "segments") and encoder.embedding.num_segments > 1


def _change(before: Tensor, after: Tensor) -> float:
    """The largest difference relative to the largest value; NaN counts as maximally different."""
    change = ((before - after).abs().max() / before.abs().max().clamp_min(1e-12)).item()
    return float("inf") if math.isnan(change) else change


def _tags(known: Sequence[tuple[Example, Prediction]]) -> tuple[list[Sequence[str]], list[Sequence[str]]]:
    true: list[Sequence[str]] = [example.tags or () for example, _ in known if isinstance(example, TaggedExample)]
    return true, [prediction["tags"] for _, prediction in known]


def _predicted_label(prediction: Prediction) -> object:
    label = next(prediction[key] for key in ("label", "choice", "answer") if key in prediction)
    return tuple(sorted(label)) if isinstance(label, list) else label


def _true_label(example: Example) -> object:
    if isinstance(example, QuestionExample):
        return example.answers[0].text if example.answers else ""
    label = example.label if isinstance(example, TextExample | ChoiceExample | ImageExample) else None
    return tuple(sorted(label)) if isinstance(label, tuple) else label
