"""How well each of several texts describes an image: zero-shot classification with an image-text model (CLIP)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import BaseModel, PrivateAttr
from torch import nn
from torch.nn import functional as F

from regard.checkpoints.loaded_model import require_tokenizer
from regard.data.batch import collate, in_groups
from regard.data.examples import ImageExample
from regard.data.image_processor import image_processor_of
from regard.errors import InputError
from regard.escaping import escape_controls
from regard.models.family import can, describe_model
from regard.nn.training import evaluation_mode
from regard.render.page_arrays import data_uri
from regard.render.result import Result, Table
from regard.render.terminal import probability_table
from regard.text import Tokenizer

BATCH_SIZE = 64  # texts


class TextSimilarity(BaseModel):
    """`cosine` is that of the vectors of text and image; `probability` compares the text with the others."""

    text: str
    probability: float
    cosine: float


class SimilarityResult(Result):
    """The texts in the order in which they were given. `truncated` counts those that were too long for the model."""

    page_view: ClassVar[str | None] = "similarity"
    view_type: ClassVar[str | None] = "regard.inference.similarity:SimilarityView"

    model: str
    image: str
    texts: list[TextSimilarity]
    truncated: int = 0
    _picture: str = PrivateAttr("")

    def to_text(self) -> str:
        ranked = sorted(self.texts, key=lambda one: -one.probability)
        rows = [(f"{one.cosine:6.3f}  {one.text}", one.probability) for one in ranked]
        return "\n".join([escape_controls(self.image), "", "  cosine  text, probability", *probability_table(rows)])

    def view_data(self) -> Mapping[str, object]:
        return {**self.to_dict(), "picture": self._picture, "notes": self.notes}

    @property
    def notes(self) -> list[str]:
        count = len(self.texts)
        return [f"{self.truncated} of {count} texts were too long for this model: truncated"] if self.truncated else []

    def to_table(self) -> Table:
        return ("text", "probability", "cosine"), [(one.text, one.probability, one.cosine) for one in self.texts]


class SimilarityView(BaseModel):
    """`picture` is a data URI of the image as the model reads it, resized and cropped."""

    model: str
    image: str
    texts: list[TextSimilarity]
    truncated: int
    picture: str


def compare_image_with_texts(
    model: nn.Module, tokenizer: Tokenizer | None, image: ImageExample, texts: Sequence[str], *, name: str = ""
) -> SimilarityResult:
    """The probabilities of texts for an image, which add up to 1, and their cosines."""
    if not can(model, "image-text"):
        raise InputError(
            f"similarity needs a model that compares images with texts, and this is {describe_model(model)} model; "
            "use a CLIP, such as openai/clip-vit-base-patch32"
        )
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise InputError(f"text {number} is empty; expected a description of an image, such as 'a photo of a cat'")
    if not texts:
        raise InputError("there is no text; expected one or more descriptions to compare the image with")
    limit: int = model.config.max_position_embeddings
    ids, cuts = require_tokenizer(model, tokenizer).ids_batch(texts, max_length=limit)
    processor, parameter = image_processor_of(model), next(model.parameters())
    with evaluation_mode(model):
        pixels = processor.pixels(image)
        of_image = model.encode_image(processor.normalize(pixels[None].to(parameter.device)).to(parameter.dtype))
        batches = [collate(rows).to(parameter.device) for rows in in_groups(ids, BATCH_SIZE)]
        of_texts = torch.cat([model.encode_text(batch.ids, batch.layout) for batch in batches])
        logits = model.logits_per_image(of_image, of_texts)[0]
        cosines = F.cosine_similarity(of_image.float(), of_texts.float())
    probabilities = logits.double().softmax(0).tolist()
    result = SimilarityResult(
        model=name,
        image=Path(image.name).name,
        texts=[
            TextSimilarity(text=text, probability=probability, cosine=cosine)
            for text, probability, cosine in zip(texts, probabilities, cosines.tolist(), strict=True)
        ],
        truncated=sum(cut > 0 for cut in cuts),
    )
    result._picture = data_uri(pixels.permute(1, 2, 0).contiguous().numpy())
    return result
