"""`regard attribute`: how much each token contributes to a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from regard.verbs.base import ModelName, Models, Request, argument, model_option, option, verb

if TYPE_CHECKING:
    from regard.interpret.attribution.attributions import AttributionResult


class AttributeRequest(Request):
    text: str = argument(help="The text; for a BERT with a blank, _ or [MASK].")
    text_b: str | None = argument(
        None, help="A second text, for a fine-tuned model that reads two: of a pair, or the context of a question."
    )
    model: ModelName = model_option()
    method: Literal["integrated-gradients", "gradient-x-input", "occlusion", "attention", "rollout"] = option(
        "integrated-gradients", help="How tokens are scored."
    )
    label: str | None = option(
        None, help="The token or label to explain; by default the likeliest one.", metavar="NAME"
    )
    target: int = option(
        0, help="Which prediction, from 0: of several blanks, words, or start and end.", metavar="N", ge=0
    )
    steps: int = option(32, help="Number of gradients for integrated gradients.", metavar="N", ge=1, le=1000)
    baseline: Literal["mask", "pad", "zero"] | None = option(
        None, help="What replaces tokens; by default the mask token, or else padding, or else zeros."
    )


@verb(
    AttributeRequest,
    result="regard.interpret.attribution.attributions:AttributionResult",
    formats=(".csv", ".json"),
)
def attribute(request: AttributeRequest, models: Models) -> AttributionResult:
    """Score each token by its contribution to a prediction: a word in a blank, the next token, a label, an answer.

    A BERT predicts the words of the blanks, a GPT the next token, a model with a task head its labels, tags or
    answers. Integrated gradients, gradient x input and occlusion say how much of the logit is due to each token,
    for (above 0) or against; attention (of the last layer) and rollout (of all layers) are weights that sum to 1.

    Example: regard attribute "In winter the fields are _ with snow." --label covered
    """
    from regard.interpret.attribution.attributions import attribute
    from regard.interpret.attribution.probe import probe_model

    with models.use(request.model) as loaded:
        return attribute(
            probe_model(loaded, request.text, request.text_b),
            method=request.method,
            target=request.target,
            label=request.label,
            steps=request.steps,
            baseline=request.baseline,
        )
