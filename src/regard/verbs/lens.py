"""`regard lens`: what each layer of a language model would predict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.verbs.base import PAGE, ModelName, Models, Request, argument, model_option, option, verb

if TYPE_CHECKING:
    from regard.interpret.logit_lens import LogitLens


class LensRequest(Request):
    text: str = argument(help="What the model reads; for a BERT, _ or [MASK] marks a blank.")
    model: ModelName = model_option()
    top: int = option(5, "-k", help="Number of candidates of each layer and position.", metavar="K", ge=1, le=50)
    position: int | None = option(
        None,
        help="Token to show in full, from 0; -1 is the last. Default: the first blank, or the last word.",
        metavar="N",
    )


@verb(LensRequest, result="regard.interpret.logit_lens:LogitLens", formats=(*PAGE, ".csv", ".json"), notes=True)
def lens(request: LensRequest, models: Models) -> LogitLens:
    """Show what each layer would predict: the logit lens.

    The hidden state of every layer goes through the model's final norm and output head. The last layer is the model's
    own prediction: the token after each position for a GPT, the token at each position for a BERT. The rank of that
    final answer in the layers before shows where it appears.

    Example: regard lens "The capital of France is" --model regard-gpt
    """
    from regard.interpret.logit_lens import logit_lens

    with models.use(request.model) as loaded:
        return logit_lens(loaded, request.text, top=request.top, position=request.position)
