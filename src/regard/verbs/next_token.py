"""`regard next-token`: the likeliest tokens after a text, and before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.verbs.base import (
    DecodingPrecision,
    ModelName,
    Models,
    Request,
    argument,
    decoding_precision_option,
    model_option,
    option,
    verb,
)

if TYPE_CHECKING:
    from regard.inference.next_token import NextTokens


class NextTokenRequest(Request):
    text: str = argument(help="The beginning of a text.")
    model: ModelName = model_option("regard-gpt")
    precision: DecodingPrecision = decoding_precision_option()
    top: int = option(10, "-k", help="Number of tokens.", metavar="N", ge=1, le=1000)
    targets: list[str] | None = option(
        None, "-t", help="Report the probability of these words as well.", metavar="A,B,C"
    )


@verb(NextTokenRequest, result="regard.inference.next_token:NextTokens", formats=(".csv", ".json"))
def next_token(request: NextTokenRequest, models: Models) -> NextTokens:
    """List the likeliest next tokens of a text with their probabilities.

    A GPT predicts the token after the text. An ELMo predicts it as well, and the one before the text: it is two
    language models, one in each direction. Probabilities are over the full vocabulary.

    Example: regard next-token "Let's stick to" --targets improvisation,aardvark
    """
    from regard.inference.next_token import predict_next_token

    with models.use(request.model, precision=request.precision) as loaded:
        return predict_next_token(
            loaded.model, loaded.tokenizer, request.text, top=request.top, targets=request.targets
        )
