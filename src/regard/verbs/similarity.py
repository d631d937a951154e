"""`regard similarity`: how well each of several texts describes an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.errors import InputError
from regard.verbs.base import PAGE, ImageName, ModelName, Models, Request, argument, model_option, verb

if TYPE_CHECKING:
    from regard.inference.similarity import SimilarityResult


class SimilarityRequest(Request):
    image: ImageName = argument(help="An image file, or an example such as digit-7.", metavar="IMAGE")
    texts: list[str] = argument(help="Descriptions to compare the image with.", metavar="TEXT...", max_length=1000)
    model: ModelName = model_option("openai/clip-vit-base-patch32")


@verb(
    SimilarityRequest,
    result="regard.inference.similarity:SimilarityResult",
    formats=(*PAGE, ".csv", ".jsonl", ".json"),
    notes=True,
)
def similarity(request: SimilarityRequest, models: Models) -> SimilarityResult:
    """Compare an image with texts, for example to classify it without training (CLIP's zero-shot classification).

    The cosine compares the vectors of the image and the text. The probabilities are over the given texts: a softmax of
    the cosines, scaled as in training. Descriptions work better than single words.

    Example: regard similarity cat.jpg "a photo of a cat" "a photo of a dog"
    """
    from regard.inference.similarity import compare_image_with_texts
    from regard.interpret.images import read_image

    try:
        image = read_image(request.image)
    except InputError as error:
        raise InputError(f"{error}. To compare texts with each other: regard.embed(texts).similarity()") from None
    with models.use(request.model) as loaded:
        return compare_image_with_texts(loaded.model, loaded.tokenizer, image, request.texts, name=request.model)
