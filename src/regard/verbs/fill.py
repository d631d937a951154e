"""`regard fill`: words for the blanks of a text, with their probabilities."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from regard.events import Note
from regard.verbs.base import PAGE, ModelName, Models, Request, argument, model_option, option, verb

if TYPE_CHECKING:
    from regard.inference.masked_lm import FillResult


class FillRequest(Request):
    text: str = argument(help="A text in which _ or [MASK] marks each blank.")
    model: ModelName = model_option()
    top: int = option(10, "-k", help="Number of candidates per blank.", metavar="N", ge=1)
    targets: list[str] | None = option(
        None, "-t", help="Score only these words; a word of several pieces gets as many masks.", metavar="A,B,C"
    )


@verb(FillRequest, result="regard.inference.masked_lm:FillResult", formats=(*PAGE, ".csv", ".json"))
def fill(request: FillRequest, models: Models) -> Generator[Note, None, FillResult]:
    """Fill in the blanks of a text with the words a masked language model finds likely.

    Probabilities are over the full vocabulary, also with --targets. With several blanks, each is first scored with the
    others masked, and then all together: filled from left to right, with the product of the steps as probability. A
    target of several pieces is scored in the same way, with a mask for each piece: compare words of as many pieces.
    """
    from regard.inference.masked_lm import fill_blanks

    with models.use(request.model) as loaded:
        result = fill_blanks(
            loaded.model,
            loaded.tokenizer,
            request.text,
            top=request.top,
            targets=request.targets,
            name=request.model,
        )
    if not result.exact:
        yield Note(message="together: the best that a beam search found; a likelier combination may exist")
    return result
