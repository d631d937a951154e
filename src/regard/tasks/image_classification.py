"""Image classification with a Vision Transformer: images of one size in, one class per image out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.examples import ImageExample
from regard.data.image_processor import ImageProcessor, image_processor_of
from regard.data.readers import read_image_examples
from regard.errors import InputError
from regard.models import Vit
from regard.tasks.task import ColumnKind, Prediction, TaskInput, config_labels
from regard.tasks.text_classification import TextClassification


class ImageTask(TextClassification):
    """One class per image. Users select it as the task `classify`."""

    training_defaults: ClassVar[Mapping[str, object]] = {
        "num_epochs": 12,
        "batch_size": 128,
        "learning_rate": 2e-3,
        "optimizer": "muon",
        "weight_decay": 0.05,
        "adversarial_epsilon": 0.0,  # images have no word embeddings
    }
    input_hint: ClassVar[str] = (
        "This model reads images: give the path of an image file on this machine as text, or an example: digit-7."
    )
    purpose: ClassVar[str] = "Classifies images"
    reader = staticmethod(read_image_examples)  # type: ignore[assignment]
    reads_images: ClassVar[bool] = True
    transformers_head: ClassVar[str] = "ImageClassification"

    @classmethod
    def from_config(cls, document: Mapping[str, Any]) -> ImageTask:
        return cls(config_labels(document))

    @classmethod
    def example(cls, text: str, second: str | None = None) -> Any:
        """The image in a file, or the example image of this name."""
        return read_image_examples(os.path.expanduser(text.strip()), labeled=False).examples[0]

    @classmethod
    def texts(cls, example: Any) -> tuple[str, str | None]:
        raise InputError("evidence is shown for texts, not for images")

    def preprocess(self, examples: Sequence[Any], builder: Any) -> list[TaskInput]:
        """`builder` is an ImageProcessor."""
        if not isinstance(builder, ImageProcessor) or not all(
            isinstance(example, ImageExample) for example in examples
        ):
            raise InputError("this model reads images, and the input is text; give it images")
        return [
            TaskInput((), index, self._target(example.label), extra=builder.pixels(example))
            for index, example in enumerate(examples)
        ]

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "pictures": True}

    @property
    def prediction_columns(self) -> dict[str, ColumnKind]:
        return {"image": "string", **super().prediction_columns}

    def to_columns(self, prediction: Prediction) -> dict[str, Any]:
        return {"image": prediction["image"], **super().to_columns(prediction)}


@dataclass(frozen=True, eq=False)
class ImageBatch:
    """Normalized pixel values of shape (B, channels, height, width)."""

    values: Tensor

    def to(self, device: torch.device) -> ImageBatch:
        return ImageBatch(self.values.to(device))


class ImageClassifier(nn.Module):
    """A Vision Transformer with its classifier. In training each image is shifted by up to `shift` pixels."""

    def __init__(self, encoder: Vit, *, shift: int = 0) -> None:
        super().__init__()
        self.encoder, self.shift = encoder, shift

    def forward(self, inputs: ImageBatch) -> Tensor:
        return self.encoder.logits(self.encoder(inputs.values))

    def collate(self, inputs: Sequence[TaskInput]) -> ImageBatch:
        values = torch.stack([item.extra for item in inputs])
        values = self._shifted(values) if self.training and self.shift else values
        return ImageBatch(image_processor_of(self.encoder).normalize(values))

    def output_counts(self, inputs: Sequence[TaskInput]) -> list[int]:
        """Positions per input."""
        return [1] * len(inputs)

    def num_tokens(self, item: TaskInput) -> int:
        return self.encoder.embedding.positions.shape[1]

    def _shifted(self, values: Tensor) -> Tensor:
        """Shift each image by a random number of rows and columns, repeating edge pixels."""
        count, _, high, wide = values.shape
        padded = F.pad(values.float(), [self.shift] * 4, mode="replicate").byte()
        down, right = torch.randint(2 * self.shift + 1, (2, count, 1))
        rows, columns = torch.arange(high) + down, torch.arange(wide) + right
        return padded.transpose(0, 1)[
            :, torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None]
        ].transpose(0, 1)
