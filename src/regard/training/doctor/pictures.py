"""The checks of pictures and of a model that looks at them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from regard.data.readers import ExampleSet
from regard.tasks.image_classification import ImageTransform
from regard.tasks.predict import predict_stream
from regard.tasks.task_folder import FineTunedModel
from regard.training.doctor.data import class_imbalance, label_noise, leakage, shape_of, spaced
from regard.training.doctor.findings import CHECKS, SIZES, DoctorFinding, skipped
from regard.training.doctor.model import constant_predictions, dropout_between

__all__ = ["look", "quick_look", "wrong_sizes"]

SAMPLE = 200  # pictures to predict for
STRETCHED = 1.1  # a side against the other: with less, nobody sees it
MANY = 0.1  # of the pictures
SMALL, MOST = 2.0, 0.5  # times that a side grows, of so many pictures: what is drawn larger has no more in it


def quick_look(train: ExampleSet[Any] | None, data: ExampleSet[Any], frame: ImageTransform) -> list[DoctorFinding]:
    """The checks that need no model; `frame` is what the model looks at."""
    learned = train or data
    reads = [data] if train is None else [train, data]
    return [
        leakage(train, data) if train else skipped("train/dev leakage", "give the training data too, with --train"),
        class_imbalance(learned),
        label_noise(learned),
        wrong_sizes(reads, frame),
    ]


def look(
    solved: FineTunedModel, train: ExampleSet[Any] | None, data: ExampleSet[Any], *, device: torch.device
) -> list[DoctorFinding]:
    """A finding for each of the ten mistakes, most of which only texts can have, and one for the pictures' sizes."""
    frame = solved.input_builder
    assert isinstance(frame, ImageTransform)
    found = {finding.check: finding for finding in quick_look(train, data, frame)}
    some = spaced(data.examples, SAMPLE)
    inputs = solved.model.collate(solved.task.preprocess(some[:1], frame)).to(device)
    with torch.no_grad():
        found["dropout left on"] = dropout_between(solved.model, solved.model(inputs), solved.model(inputs))
    found["constant predictions"] = constant_predictions(some, list(predict_stream(solved, some, device=device)))
    why = "pictures have no tokens, no words and no columns"
    return [found.get(check) or skipped(check, why) for check in (*CHECKS, SIZES)]


def wrong_sizes(reads: Sequence[ExampleSet[Any]], frame: ImageTransform) -> DoctorFinding:
    """How many pictures a model sees stretched, or enlarged to more than twice their size."""
    for read in reads:
        shapes = [shape_of(picture) for picture in read.examples]
        other = sum(shape != (frame.height, frame.width) for shape in shapes)
        stretched = sum(_stretch(shape, frame) > STRETCHED for shape in shapes)
        small = sum(max(frame.height / high, frame.width / wide) > SMALL for high, wide in shapes)
        evidence = f"{read.path}: {other:,} of {len(shapes):,} pictures are resized to {frame.height} x {frame.width}"
        if stretched >= MANY * len(shapes) and stretched:
            remedy = "cut the pictures to one shape, or fill them up, before the model sees them"
            return DoctorFinding(
                SIZES, "warning", f"{evidence}, {stretched:,} of them stretched by more than a tenth", remedy
            )
        if small >= MOST * len(shapes) and small:
            remedy = "train on pictures of the size that is looked at, or look at larger ones"
            return DoctorFinding(
                SIZES, "warning", f"{evidence}, {small:,} of them to more than twice their size", remedy
            )
    return DoctorFinding(SIZES, "ok", evidence)


def _stretch(shape: tuple[int, int], frame: ImageTransform) -> float:
    """By how much one side grows against the other."""
    return math.exp(abs(math.log(shape[0] / shape[1] * frame.width / frame.height)))
