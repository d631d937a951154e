"""Checks of a model: does a text's result depend on its neighbours, on chance, on what it should depend on?

A check asks a function from rows to their vectors, or looks at predictions; so what is asked can be any model, also
one with a mistake.
"""

from __future__ import annotations

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

__all__ = [
    "Ask",
    "constant_predictions",
    "dropout_between",
    "dropout_on",
    "missing_mask",
    "packed",
    "padded",
    "wrong_segments",
]

Ask = Callable[
    [Sequence[InputSequence]], list[Tensor]
]  # rows, read in one batch, to the vectors (tokens, width) of each

NOISE = 1e-3  # of the largest number: rounding is a hundredth of that, and a mistake far more
UNUSED = 1e-6  # of the largest number
ENOUGH = 20  # examples, or tagged words, to judge predictions by
ALIKE, VARIED = 0.98, 0.95  # one prediction for so many, while no label has more than so many
FLAT = 0.05  # the spread of predicted numbers against that of the labels


def missing_mask(
    asks: Mapping[str, Ask], short: InputSequence, long: InputSequence, *, inputs: Sequence[str] = ()
) -> DoctorFinding:
    """Whether a text's vectors change with what is beside it. `asks` are ways to lay out a batch, by name; `inputs` is
    what a folder tells other software to feed the model, empty where it does not say."""
    check = "missing mask"
    if len(short) == len(long):
        return skipped(check, f"all rows have {len(short)} tokens, so that nothing is padded")
    changes = {name: _change(ask([short])[0], ask([short, long])[0]) for name, ask in asks.items()}
    worst = max(changes, key=changes.__getitem__)
    evidence = f"a text of {len(short)} tokens changes by {changes[worst]:.1g} of its largest number when {worst} "
    evidence += f"beside one of {len(long)}"
    if changes[worst] > NOISE:
        return DoctorFinding(check, "error", evidence, "give the model the mask of what is padding, in training too")
    if inputs and "attention_mask" not in inputs:
        told = f"{evidence}; but tokenizer_config.json has model_input_names {', '.join(inputs)}"
        remedy = 'add "attention_mask" to model_input_names: without it, other software pads without a mask'
        return DoctorFinding(check, "warning", told, remedy)
    return DoctorFinding(check, "ok", evidence)


def wrong_segments(
    ask: Ask, pairs: Sequence[InputSequence], *, needed: bool, inputs: Sequence[str] = ()
) -> DoctorFinding:
    """Whether rows of two texts say so, 0s and then 1s, and the model notices. `needed`: the task has pairs."""
    check = "wrong segment ids"
    wrong = [row for row in pairs if row.segments != sorted(row.segments) or set(row.segments) != {0, 1}]
    if wrong:
        shown = "".join(map(str, wrong[0].segments[:40]))
        evidence = f"{len(wrong):,} of {len(pairs):,} pairs have other segment ids than 0s and then 1s, such as {shown}"
        remedy = "mend the post_processor of tokenizer.json: the second text and its [SEP] have type_id 1"
        return DoctorFinding(check, "error" if needed else "warning", evidence, remedy)
    row = pairs[0]
    change = _change(ask([row])[0], ask([replace(row, segments=[0] * len(row))])[0])
    evidence = f"a pair's vectors change by {change:.1g} of the largest number when all its segment ids are 0"
    if inputs and "token_type_ids" not in inputs:
        told = f"{evidence}; but tokenizer_config.json has model_input_names {', '.join(inputs)}"
        remedy = 'add "token_type_ids" to model_input_names: without it, other software gives both texts 0'
        return DoctorFinding(check, "warning", told, remedy)
    if change < UNUSED and needed:
        remedy = "the model cannot tell the two texts apart by their segments: its segment vectors are equal or unread"
        return DoctorFinding(check, "warning", evidence, remedy)
    return DoctorFinding(check, "ok", evidence)


def dropout_on(model: nn.Module, ask: Ask, row: InputSequence) -> DoctorFinding:
    """Whether chance has a part in what the model says, as it should in training alone. `ask` must take it as it is."""
    return dropout_between(model, ask([row])[0], ask([row])[0])


def dropout_between(model: nn.Module, first: Tensor, second: Tensor) -> DoctorFinding:
    """The same of what the model said twice of one input."""
    check = "dropout left on"
    change = _change(first, second)
    training = [name or type(model).__name__ for name, part in model.named_modules() if part.training]
    evidence = f"two runs of one input differ by {change:.1g} of the largest number"
    if training:
        evidence += f"; {len(training):,} parts are in training mode, such as {training[0]}"
    if change <= NOISE and not training:
        return DoctorFinding(check, "ok", evidence)
    return DoctorFinding(
        check, "error" if change > NOISE else "warning", evidence, "call model.eval() before predicting"
    )


def constant_predictions(examples: Sequence[Example], predictions: Sequence[Prediction]) -> DoctorFinding:
    """Whether the model says one thing of (nearly) all examples, though their labels differ."""
    check = "constant predictions"
    known = [(one, said) for one, said in zip(examples, predictions, strict=True) if is_labeled(one)]
    if len(known) < ENOUGH:
        return skipped(check, f"{len(known)} labeled examples are too few to tell; {ENOUGH} are enough")
    remedy = (
        "lower training.learning_rate, train longer, or look at the labels: the model learned nothing from the input"
    )
    first = known[0][0]
    if isinstance(first, TaggedExample):
        true, found = (sum(tag != "O" for tags in column for tag in tags) for column in _tags(known))
        evidence = f"{found:,} words are tagged, and {true:,} should be"
        constant = true >= ENOUGH and found <= (1 - ALIKE) * true
    elif isinstance(first, TextExample) and isinstance(first.label, float):
        labels = [one.label for one, _ in known if isinstance(one, TextExample)]
        truth = statistics.pstdev([label for label in labels if isinstance(label, float)])
        spread = statistics.pstdev([said["value"] for _, said in known])
        evidence = f"the predicted numbers have a deviation of {spread:.2g}, the labels one of {truth:.2g}"
        constant = spread < FLAT * truth
    else:
        said, most = Counter(_said(prediction) for _, prediction in known).most_common(1)[0]
        highest = Counter(_true(one) for one, _ in known).most_common(1)[0][1]
        evidence = f"{most:,} of {len(known):,} predictions are {said!r}; the most frequent label has {highest:,}"
        constant = most >= ALIKE * len(known) and highest <= VARIED * len(known)
    return DoctorFinding(check, "error" if constant else "ok", evidence, remedy if constant else "")


def padded(encoder: nn.Module, *, padding: int = 0) -> Ask:
    """Ask an encoder with a rectangle of tokens and its mask, as other software does."""

    def ask(rows: Sequence[InputSequence]) -> list[Tensor]:
        device = next(encoder.parameters()).device
        batch = collate([row.ids for row in rows], packed=False, padding=padding).to(device)
        width = batch.ids.shape[1]
        segments = torch.tensor([row.segments + [0] * (width - len(row)) for row in rows], device=device)
        with torch.no_grad():
            hidden = _hidden(encoder, batch.ids, batch.layout, segments)
        return [one[: len(row)].float().cpu() for one, row in zip(hidden, rows, strict=True)]

    return ask


def packed(encoder: nn.Module) -> Ask:
    """Ask an encoder with rows one behind the other, as Regard does."""

    def ask(rows: Sequence[InputSequence]) -> list[Tensor]:
        device = next(encoder.parameters()).device
        batch = collate([row.ids for row in rows]).to(device)
        segments = torch.tensor([segment for row in rows for segment in row.segments], device=device)
        with torch.no_grad():
            hidden = _hidden(encoder, batch.ids, batch.layout, segments)
        return list(torch.split(hidden.float().cpu(), [len(row) for row in rows]))

    return ask


def _hidden(encoder: nn.Module, ids: Tensor, layout: Any, segments: Tensor) -> Tensor:
    two = can(encoder, "text-encoder") and encoder.config.type_vocab_size > 1
    hidden: Tensor = encoder(ids, layout, segments) if two else encoder(ids, layout)
    return hidden


def _change(before: Tensor, after: Tensor) -> float:
    """The largest difference, as a part of the largest number; a number that is none differs wholly."""
    share = ((before - after).abs().max() / before.abs().max().clamp_min(1e-12)).item()
    return share if share == share else float("inf")


def _tags(known: Sequence[tuple[Example, Prediction]]) -> tuple[list[Sequence[str]], list[Sequence[str]]]:
    return [one.tags or () for one, _ in known if isinstance(one, TaggedExample)], [said["tags"] for _, said in known]


def _said(prediction: Prediction) -> object:
    said = next(prediction[key] for key in ("label", "choice", "answer") if key in prediction)
    return tuple(sorted(said)) if isinstance(said, list) else said


def _true(example: Example) -> object:
    if isinstance(example, QuestionExample):
        return example.answers[0].text if example.answers else ""
    label = example.label if isinstance(example, TextExample | ChoiceExample | ImageExample) else None
    return tuple(sorted(label)) if isinstance(label, tuple) else label
