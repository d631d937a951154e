"""`regard patch`: which activations carry the difference between two prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.verbs.base import PAGE, ModelName, Models, Request, argument, model_option, option, verb

if TYPE_CHECKING:
    from regard.interpret.patching import PatchingResult


class PatchRequest(Request):
    clean: str = argument(help="The prompt whose activations are inserted.")
    corrupted: str = argument(help="The prompt that the model reads; it has the same number of tokens.")
    model: ModelName = model_option("regard-gpt")
    answer: str | None = option(
        None,
        help="The next token of the clean prompt, a word of one token; by default the likeliest one.",
        metavar="WORD",
    )
    wrong: str | None = option(
        None,
        help="The next token of the corrupted prompt, likewise; by default the likeliest one.",
        metavar="WORD",
    )


@verb(PatchRequest, result="regard.interpret.patching:PatchingResult", formats=(*PAGE, ".csv", ".json"))
def patch(request: PatchRequest, models: Models) -> PatchingResult:
    """Patch activations between two prompts and see which of them restore the answer.

    The model reads the corrupted prompt with one activation of the clean prompt: the hidden state of one layer and
    position, or the output of one head. The result is the restored share of the difference between the logits of the
    answer and the wrong answer: 0% as in the corrupted prompt, 100% as in the clean one.

    Example: regard patch "The queen said that" "The king said that" --answer she --wrong he
    """
    from regard.interpret.patching import patch_activations

    with models.use(request.model) as loaded:
        return patch_activations(loaded, request.clean, request.corrupted, answer=request.answer, wrong=request.wrong)
