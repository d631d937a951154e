"""`regard cost`: the cost of training a model, by arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from regard.verbs.base import Models, Request, argument, option, verb

if TYPE_CHECKING:
    from regard.training.cost import CostEstimate


class CostRequest(Request):
    model: str = argument(
        help="A TOML file of `regard pretrain`, a model folder, gpt3, or a known name.", metavar="CONFIG|NAME"
    )
    tokens: str = option(help="Training tokens: 300B, 1.5e9.", metavar="N")
    gpu: Literal["v100", "a100", "h100", "h200"] = option("v100", help="GPU whose hours are counted.")
    price: float | None = option(None, help="Price of an hour of one GPU, in any currency.", metavar="P")
    utilization: float = option(0.3, help="Share of the GPU's peak FLOPS that is reached.", metavar="U")
    length: int | None = option(
        None, help="Tokens per row. Default: as in the TOML file, or all positions.", metavar="N", ge=1
    )


@verb(CostRequest, result="regard.training.cost:CostEstimate", http=False)
def cost(request: CostRequest, models: Models) -> CostEstimate:
    """Estimate what training takes: parameters, FLOPs, GPU hours, and money if a price is given. `regard cost embed`
    does so for embedding.

    FLOPs are 6 x parameters x tokens; those of attention are listed separately. No model is built, downloaded or
    measured.
    """
    from regard.training.cost import estimate_cost, find_shape, parse_count, shape_of_settings

    tokens = parse_count(request.tokens)
    find = shape_of_settings if request.model.endswith(".toml") else find_shape
    shape = find(request.model, length=request.length)
    return estimate_cost(shape, tokens=tokens, gpu=request.gpu, utilization=request.utilization, price=request.price)
