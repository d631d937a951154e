"""`regard faithfulness`: may an attention map be read as the reason for a class?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.errors import InputError
from regard.verbs.base import (
    PAGE,
    ImageName,
    ModelName,
    Models,
    Request,
    argument,
    image_option,
    layer_option,
    option,
    seed_option,
    verb,
)

if TYPE_CHECKING:
    from regard.interpret.attribution.probe import Probe
    from regard.interpret.faithfulness import FaithfulnessResult


class FaithfulnessRequest(Request):
    model: ModelName = argument(help="A classifier, of `regard train` or published; or another model.")
    text: str = argument("", help="The text to classify; for a pretrained BERT with a blank.")
    text_b: str | None = argument(None, help="The second text, for pairs.")
    image: ImageName | None = image_option()
    label: str | None = option(None, help="The class to explain; by default the predicted one.", metavar="NAME")
    layer: int | None = layer_option("The layer of the map (by default the last)")
    head: int | None = option(None, help="The head, counted from 0; by default the mean of all.", metavar="H")
    seed: int = seed_option()


@verb(
    FaithfulnessRequest,
    result="regard.interpret.faithfulness:FaithfulnessResult",
    formats=(*PAGE, ".csv", ".json"),
    notes=True,
    aliases=("honesty",),
)
def faithfulness(request: FaithfulnessRequest, models: Models) -> FaithfulnessResult:
    """Test the attention map of a classified text or image: may it be read as the reason for the class?

    Six tests with fixed thresholds (docs/faithfulness.md) give one verdict: faithful, doubtful or unfaithful. The map
    is the attention of the token that stands for the text. Other models have no classes to test: for them the result is
    the map and the attributions of one prediction, at the blank for a BERT, at the end for a GPT. For an image
    classifier the patches of an image take the place of words; the map is the same whichever class it is shown for.
    """
    from regard.interpret.attribution.image_probe import image_probe
    from regard.interpret.attribution.probe import probe_model
    from regard.interpret.faithfulness import measure_faithfulness
    from regard.interpret.images import read_image

    if request.image is not None and (request.text or request.text_b):
        raise InputError("expected a text or an image, got both; leave one of them out")
    image = None if request.image is None else read_image(request.image)
    with models.use(request.model) as loaded:
        if image is None:
            probe: Probe = probe_model(loaded, request.text, request.text_b)
        else:
            probe = image_probe(loaded, image)
        return loaded.cached(
            ("faithfulness", request),
            lambda: measure_faithfulness(
                probe, label=request.label, layer=request.layer, head=request.head, seed=request.seed
            ),
        )
