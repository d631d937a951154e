"""`regard logit-attribution`: how much each head and feed-forward network adds to the logit of a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.verbs.base import PAGE, ModelName, Models, Request, argument, model_option, option, verb

if TYPE_CHECKING:
    from regard.interpret.logit_attribution import LogitAttribution


class LogitAttributionRequest(Request):
    text: str = argument(help="The prompt; the logit is that of the next token.")
    model: ModelName = model_option("regard-gpt")
    answer: str | None = option(
        None, help="The next token, a word of one token; by default the likeliest one.", metavar="WORD"
    )
    wrong: str | None = option(None, help="Another token: attribute the difference of the two logits.", metavar="WORD")


@verb(
    LogitAttributionRequest,
    result="regard.interpret.logit_attribution:LogitAttribution",
    formats=(*PAGE, ".csv", ".json"),
)
def logit_attribution(request: LogitAttributionRequest, models: Models) -> LogitAttribution:
    """Attribute the logit of the next token to the heads and feed-forward networks of a causal model.

    Each adds a vector to the residual stream. With the scale of the final norm held fixed, the logit is the sum of
    their contributions, of the embedding and of the biases. For pre-norm models such as GPT-2 and Llama.

    Example: regard logit-attribution "The river flows into the Atlantic" --answer Ocean
    """
    from regard.interpret.logit_attribution import attribute_logit

    with models.use(request.model) as loaded:
        return attribute_logit(loaded, request.text, answer=request.answer, wrong=request.wrong)
