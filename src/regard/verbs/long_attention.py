"""`regard long-attention`: the attention of one head over a text of thousands of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.verbs.base import PAGE, ModelName, Models, Request, argument, model_option, option, verb

if TYPE_CHECKING:
    from regard.interpret.attention.long import LongAttention


class LongAttentionRequest(Request):
    text: str = argument(help="What the model reads, up to 8,192 tokens.")
    model: ModelName = model_option()
    layer: int = option(1, help="Layer of the head, counted from 1; -1 is the last.", metavar="L")
    head: int = option(0, help="The head, counted from 0.", metavar="H", ge=0)


@verb(
    LongAttentionRequest,
    result="regard.interpret.attention.long:LongAttention",
    formats=(*PAGE, ".csv", ".json"),
    notes=True,
    max_characters=300_000,
)
def long_attention(request: LongAttentionRequest, models: Models) -> LongAttention:
    """Show the attention of one head over a long text: an overview of the map, and any part of it in full.

    `regard look` shows all heads of a text that is short enough for a page. Here the page gets the queries and keys of
    one head and computes the tiles that are looked at.
    """
    from regard.interpret.attention.long import long_attention

    with models.use(request.model) as loaded:
        return long_attention(loaded, request.text, layer=request.layer, head=request.head)
