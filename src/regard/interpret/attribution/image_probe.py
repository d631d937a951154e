"""One image, one image classifier, and the classes that an analysis studies: the patches are the tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.checkpoints.loaded_model import LoadedModel
from regard.data.examples import ImageExample
from regard.data.image_processor import image_processor_of
from regard.errors import InputError, check_choice
from regard.interpret.attention.maps import axis_of_patches
from regard.interpret.attribution.probe import Probe
from regard.models.family import describe_model
from regard.tasks.image_classification import ImageClassifier


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageProbe(Probe):
    """An image as a model reads it: `pixels` (channels, height, width) from 0 to 255, cut into a `grid` of patches.

    `ids` are the positions of the special tokens and the patches. A patch that is removed takes its position with it.
    """

    pixels: Tensor
    grid: tuple[int, int]

    def token_embeddings(self) -> Tensor:
        return self._embed(self.pixels)

    def baseline(self, name: str | None) -> tuple[str, Tensor]:
        """A black image, or zero embeddings for all patches."""
        name = "black" if name is None else name
        check_choice("baseline", name, ("black", "zero"))
        embeddings = self._embed(torch.zeros_like(self.pixels)).detach()
        return name, embeddings if name == "black" else torch.zeros_like(embeddings)

    def logits(self, inputs: Tensor | None = None, *, segments: Tensor | None = None) -> Tensor:
        """Logits (B, 1, O) for positions (B, T) or embeddings (B, T, W) of patches; by default for the image itself."""
        inputs = self.ids[None] if inputs is None else inputs
        if inputs.is_floating_point():
            return self.read(self.encoder(inputs)).float()
        return self.read(self.encoder(self.token_embeddings()[inputs], inputs)).float()

    def picture(self) -> NDArray[np.uint8]:
        """The image as it is drawn: (height, width), or (height, width, 3) in color."""
        pixels = self.pixels[0] if len(self.pixels) == 1 else self.pixels.permute(1, 2, 0)
        return pixels.contiguous().numpy().astype(np.uint8)

    def _embed(self, pixels: Tensor) -> Tensor:
        projection = self.encoder.embedding.project.weight
        values = image_processor_of(self.encoder).normalize(pixels.to(projection.device)).to(projection.dtype)
        embeddings: Tensor = self.encoder.embedding.tokens(values[None])[0]
        return embeddings


def image_probe(loaded: LoadedModel, image: ImageExample) -> ImageProbe:
    """Probe an image classifier that `regard train classify` wrote."""
    fine_tuned = loaded.fine_tuned
    if fine_tuned is None or not fine_tuned.task.reads_images:
        raise InputError(
            f"expected an image classifier, which `regard train classify` writes; {loaded.name} is "
            f"{describe_model(loaded.model)} model. Use `regard models` to find one, or give a text"
        )
    model, task = fine_tuned.model, fine_tuned.task
    assert isinstance(model, ImageClassifier)
    embedding, classifier = model.encoder.embedding, model.encoder.classifier
    assert classifier is not None
    axis = axis_of_patches(embedding.grid, embedding.num_special)
    return ImageProbe(
        task=task.name,
        texts=(image.name,),
        model=model,
        encoder=model.encoder,
        ids=torch.arange(embedding.positions.shape[1], device=classifier.weight.device),
        tokens=axis.tokens,
        token_texts=axis.tokens,
        special=axis.special,
        targets=("image",),
        outputs=task.labels,
        read=lambda hidden: classifier(hidden[:, :1]),
        problem_type=task.problem_type or "single_label_classification",
        pixels=image_processor_of(model.encoder).pixels(image),
        grid=embedding.grid,
        name=loaded.name,
    )
