"""Pictures and their classes: a Vision Transformer reads patches as a BERT reads words.

Knows pixels and tensors. Knows no image files.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.examples import ImageExample
from regard.errors import InputError
from regard.models import Vit
from regard.tasks.task import TaskInput
from regard.tasks.text_classification import TextClassification

__all__ = ["ImageBatch", "ImageClassifier", "ImageTask", "ImageTransform"]

PATCHES = 256  # about as many as a new model gets: what attention costs grows with their square


@dataclass(frozen=True)
class ImageTransform:
    """What a model looks at: pictures of one size, in grey or in colours; others are made so."""

    height: int
    width: int
    channels: int

    @classmethod
    def for_images(cls, pictures: Sequence[ImageExample], *, patch: int) -> ImageTransform:
        """For a new model: the middle size of the pictures, made smaller where that is too many patches, in whole
        patches; in colours if any picture is."""
        high, wide = (statistics.median(one.pixels.shape[side] for one in pictures) for side in (0, 1))
        smaller = min(1.0, patch * math.sqrt(PATCHES / (high * wide)))
        height, width = (max(1, round(side * smaller / patch)) * patch for side in (high, wide))
        return cls(height, width, 3 if any(one.pixels.ndim == 3 for one in pictures) else 1)

    def count_resized(self, pictures: Sequence[ImageExample]) -> int:
        """How many pictures have another size."""
        return sum(one.pixels.shape[:2] != (self.height, self.width) for one in pictures)

    def pixels(self, picture: ImageExample) -> Tensor:
        """(channels, height, width), 0 to 255."""
        found = torch.from_numpy(np.array(picture.pixels))
        found = found[None] if found.ndim == 2 else found.permute(2, 0, 1)
        if len(found) != self.channels:
            found = found.expand(3, -1, -1) if self.channels == 3 else found.float().mean(0, keepdim=True).byte()
        if found.shape[1:] != (self.height, self.width):
            size = (self.height, self.width)
            grown = F.interpolate(found[None].float(), size, mode="bilinear", antialias=True)[0]
            found = grown.round().clamp(0, 255).byte()
        return found


class ImageTask(TextClassification):
    """One class a picture. It is `classify` to its user."""

    def preprocess(self, examples: Sequence[Any], rows: Any) -> list[TaskInput]:
        """`rows` is a Frame."""
        if not isinstance(rows, ImageTransform) or not all(isinstance(example, ImageExample) for example in examples):
            raise InputError("this model looks at pictures, and the input is text; give it images")
        return [
            TaskInput((), place, self._target(example.label), extra=rows.pixels(example))
            for place, example in enumerate(examples)
        ]

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "pictures": True}

    def _said(self, example: Any) -> dict[str, Any]:
        return {"image": example.name}


@dataclass(frozen=True, eq=False)
class ImageBatch:
    """(B, channels, height, width), -1 to 1."""

    values: Tensor

    def to(self, device: torch.device) -> ImageBatch:
        return ImageBatch(self.values.to(device))


class ImageClassifier(nn.Module):
    """A Vision Transformer with its classes. In training each picture moves by up to `shift` pixels."""

    def __init__(self, encoder: Vit, *, shift: int = 0) -> None:
        super().__init__()
        self.encoder, self.shift = encoder, shift

    def forward(self, inputs: ImageBatch) -> Tensor:
        assert self.encoder.classifier is not None
        result: Tensor = self.encoder.classifier(self.encoder(inputs.values)[:, 0])
        return result

    def collate(self, items: Sequence[TaskInput]) -> ImageBatch:
        values = torch.stack([item.extra for item in items])
        return ImageBatch((self._moved(values) if self.training and self.shift else values).float() / 127.5 - 1)

    def output_counts(self, items: Sequence[TaskInput]) -> list[int]:
        return [1] * len(items)

    def num_tokens(self, item: TaskInput) -> int:
        """In tokens."""
        high, wide = self.encoder.config.image_size[0], self.encoder.config.image_size[1]
        return 1 + (high // self.encoder.config.patch_size[0]) * (wide // self.encoder.config.patch_size[1])

    def _moved(self, values: Tensor) -> Tensor:
        """Each by its own number of rows and columns; what comes in is the edge."""
        count, _, high, wide = values.shape
        padded = F.pad(values.float(), [self.shift] * 4, mode="replicate").byte()
        down, right = torch.randint(2 * self.shift + 1, (2, count, 1))
        rows, columns = torch.arange(high) + down, torch.arange(wide) + right
        return padded.transpose(0, 1)[
            :, torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None]
        ].transpose(0, 1)
