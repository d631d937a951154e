"""Checks of images and of image classification models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from regard.data.readers import ExampleSet
from regard.tasks.fine_tuned_model import FineTunedModel, predict_stream
from regard.tasks.image_classification import ImageTransform
from regard.training.doctor.data import class_imbalance, label_noise, leakage, shape_of, spaced
from regard.training.doctor.findings import CHECKS, SIZES, DoctorFinding, skipped
from regard.training.doctor.model import constant_predictions, dropout_between

SAMPLE = 200  # images to predict
STRETCHED = 1.1  # change of the aspect ratio; less is not visible
MANY = 0.1  # share of the images
SMALL, MOST = 2.0, 0.5  # enlargement of a side, and share of the images; enlarging adds no information


def quick_look(train: ExampleSet[Any] | None, data: ExampleSet[Any], transform: ImageTransform) -> list[DoctorFinding]:
    """The checks that need no model; `transform` resizes images to the model's input size."""
    trained_on = train or data
    reads = [data] if train is None else [train, data]
    return [
        leakage(train, data) if train else skipped("train/dev leakage", "give the training data too, with --train"),
        class_imbalance(trained_on),
        label_noise(trained_on),
        wrong_sizes(reads, transform),
    ]


def look(
    fine_tuned: FineTunedModel, train: ExampleSet[Any] | None, data: ExampleSet[Any], *, device: torch.device
) -> list[DoctorFinding]:
    """One finding for each of the ten checks, of which many apply only to texts, and one for the image sizes."""
    transform = fine_tuned.input_builder
    assert isinstance(transform, ImageTransform)
    findings = {finding.check: finding for finding in quick_look(train, data, transform)}
    sample = spaced(data.examples, SAMPLE)
    inputs = fine_tuned.model.collate(fine_tuned.task.preprocess(sample[:1], transform)).to(device)
    with torch.no_grad():
        findings["dropout left on"] = dropout_between(
            fine_tuned.model, fine_tuned.model(inputs), fine_tuned.model(inputs)
        )
    findings["constant predictions"] = constant_predictions(
        sample, list(predict_stream(fine_tuned, sample, device=device))
    )
    why = "images have no tokens, words or columns"
    return [findings.get(check) or skipped(check, why) for check in (*CHECKS, SIZES)]


def wrong_sizes(reads: Sequence[ExampleSet[Any]], transform: ImageTransform) -> DoctorFinding:
    """How many images are stretched, or enlarged to more than twice their size."""
    for read in reads:
        shapes = [shape_of(image) for image in read.examples]
        resized = sum(shape != (transform.height, transform.width) for shape in shapes)
        stretched = sum(_stretch(shape, transform) > STRETCHED for shape in shapes)
        small = sum(max(transform.height / high, transform.width / wide) > SMALL for high, wide in shapes)
        evidence = (
            f"{read.path}: {resized:,} of {len(shapes):,} images are resized to {transform.height} x {transform.width}"
        )
        if stretched >= MANY * len(shapes) and stretched:
            remedy = "crop or pad the images to one shape"
            return DoctorFinding(
                SIZES, "warning", f"{evidence}, {stretched:,} of them stretched by more than a tenth", remedy
            )
        if small >= MOST * len(shapes) and small:
            remedy = "train with a smaller image size, or use larger images"
            return DoctorFinding(
                SIZES, "warning", f"{evidence}, {small:,} of them to more than twice their size", remedy
            )
    return DoctorFinding(SIZES, "ok", evidence)


def _stretch(shape: tuple[int, int], transform: ImageTransform) -> float:
    """The factor by which the aspect ratio changes."""
    return math.exp(abs(math.log(shape[0] / shape[1] * transform.width / transform.height)))
