"""`regard look`: the attention maps of a text, a pair or an image."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Literal

from regard.events import Note
from regard.verbs.base import (
    PAGE,
    ImageName,
    ModelName,
    Models,
    Request,
    argument,
    image_option,
    layer_option,
    model_option,
    option,
    verb,
)

if TYPE_CHECKING:
    from regard.interpret.attention.maps import AttentionRecord


class LookRequest(Request):
    text: str = argument("", help="What the model reads.")
    text_b: str | None = argument(None, help="A second text; for a T5 or a translator, the output.")
    model: ModelName = model_option()
    image: ImageName | None = image_option()
    kind: Literal["encoder", "decoder", "cross", "lstm", "vit"] | None = option(
        None, help="Which maps, if a model has several; a page shows all of them."
    )
    layer: int | None = layer_option("Show only this layer")
    head: int | None = option(None, help="Show only this head of the layer, counted from 0.", metavar="H")


@verb(LookRequest, result="regard.interpret.attention.maps:AttentionRecord", formats=(*PAGE, ".csv", ".json"))
def look(request: LookRequest, models: Models) -> Generator[Note, None, AttentionRecord]:
    """Show a model's attention: which token attends to which, in every layer and head.

    A page (.html) shows all of it and needs no network. A drawing (.svg, .png) shows one head, all heads of a layer in
    colors, or, without --layer, a small map of every head. The printed table lists where each token attends most,
    averaged over the heads that are selected; without --layer those of the last layer.
    """
    from regard.interpret.attention.recording import attention_result
    from regard.interpret.images import read_image

    image = None if request.image is None else read_image(request.image)
    with models.use(request.model) as loaded:
        result = attention_result(
            loaded,
            request.text,
            request.text_b,
            image=image,
            kind=request.kind,
            layer=request.layer,
            head=request.head,
        )
    for note in (*result.notes, result.truncation_note):
        if note:
            yield Note(message=note)
    return result
