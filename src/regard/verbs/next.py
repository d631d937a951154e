"""`regard next`: how likely one text follows another."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from regard.events import Note
from regard.verbs.base import ModelName, Models, Request, argument, model_option, verb

if TYPE_CHECKING:
    from regard.inference.masked_lm import NextSentence


class NextRequest(Request):
    first: str = argument(help="A text.")
    second: str = argument(help="The text that may follow it.")
    model: ModelName = model_option()


@verb(NextRequest, result="regard.inference.masked_lm:NextSentence", formats=(".json",))
def next(request: NextRequest, models: Models) -> Generator[Note, None, NextSentence]:
    """Predict how likely the second text follows the first, with BERT's next-sentence head."""
    from regard.inference.masked_lm import predict_next_sentence

    with models.use(request.model) as loaded:
        result = predict_next_sentence(loaded.model, loaded.tokenizer, request.first, request.second)
    if result.cut:
        yield Note(message=f"the texts are {result.cut} tokens too long for this model; the longer one was truncated")
    return result
