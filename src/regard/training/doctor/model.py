"""Checks of a model: missing attention mask, wrong segment ids, dropout left on, constant predictions.

The checks take a function that encodes sequences, or predictions, so they work with any model.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

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
from regard.models.family import can
from regard.tasks.inputs import InputSequence
from regard.tasks.task import Prediction
from regard.training.doctor.findings import DoctorFinding, skipped

# Encodes sequences as one batch and returns the hidden states (tokens, width) of each.
Ask = Callable[[Sequence[InputSequence]], list[Tensor]]

NOISE = 1e-3  # relative difference; rounding causes about 1e-5, a mistake far more than this
UNUSED = 1e-6  # relative difference below which an input has no effect
ENOUGH = 20  # examples, or tagged words, needed to judge predictions
ALIKE, VARIED = 0.98, 0.95  # minimum share of the most frequent prediction, maximum share of the most frequent label
FLAT = 0.05  # standard deviation of predicted numbers relative to that of the labels


def missing_mask(
    layouts: Mapping[str, Ask], short: InputSequence, long: InputSequence, *, inputs: Sequence[str] = ()
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
    encode: Ask, pairs: Sequence[InputSequence], *, needed: bool, inputs: Sequence[str] = ()
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


def dropout_on(model: nn.Module, encode: Ask, row: InputSequence) -> DoctorFinding:
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
        spread = statistics.pstdev([prediction["value"] for _, prediction in known])
        evidence = f"the standard deviation of the predictions is {spread:.2g}, that of the labels {truth:.2g}"
        constant = spread < FLAT * truth
    else:
        value, most = Counter(_predicted_label(prediction) for _, prediction in known).most_common(1)[0]
        highest = Counter(_true_label(example) for example, _ in known).most_common(1)[0][1]
        evidence = f"{most:,} of {len(known):,} predictions are {value!r}; the most frequent label has {highest:,}"
        constant = most >= ALIKE * len(known) and highest <= VARIED * len(known)
    return DoctorFinding(check, "error" if constant else "ok", evidence, remedy if constant else "")


def padded(encoder: nn.Module, *, padding: int = 0) -> Ask:
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


def packed(encoder: nn.Module) -> Ask:
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
    two = can(encoder, "text-encoder") and encoder.config.type_vocab_size > 1
    hidden: Tensor = encoder(ids, layout, segments) if two else encoder(ids, layout)
    return hidden


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
