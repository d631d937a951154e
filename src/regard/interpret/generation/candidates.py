"""What may come next: the likeliest tokens at one place of a text, and which of them the filters leave.

Knows logits and the stages of `Sampling`. Knows no model and no text; a function it is given spells tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from torch import Tensor

__all__ = ["TOP", "CandidateToken", "CandidateTokens", "candidate_tokens"]

TOP = 15  # bars at a place
BEFORE = ("repetition", "temperature")  # filters that move probability and, above temperature 0, take none away
Stages = Sequence[tuple[str, Tensor]]


@dataclass(frozen=True)
class CandidateToken:
    """One token that might come next.

    `probability` is the model's own, `tempered` that after repetition penalty and temperature, `chance` what is left
    when all filters have done their work: 0 where one of them, `by`, cut the token. `reached` is the share that this
    token and the likelier ones have of what top-p chooses from; None where top-p never saw the token.
    """

    token: int
    text: str
    probability: float
    tempered: float
    reached: float | None
    chance: float
    by: str | None


@dataclass(frozen=True)
class CandidateTokens:
    """The likeliest tokens at one place, likeliest first, and behind them the one that was said if it is not of these.

    `kept` tokens of the whole vocabulary may be said, which have `share` of the tempered probability.
    """

    bars: tuple[CandidateToken, ...]
    chosen: int | None
    kept: int
    share: float
    vocabulary: int

    def document(self) -> dict[str, object]:
        return {**asdict(self), "bars": [asdict(one) for one in self.bars]}


def candidate_tokens(
    logits: Tensor, stages: Stages, *, spell: Callable[[int], str], chosen: int | None = None, top: int = TOP
) -> CandidateTokens:
    """The bars of the model's logits (V,), given the logits after each filter, as `Sampling.stages` has them."""
    numbers = logits.double()
    after = {"": numbers, **dict(stages)}
    penalised = after.get("repetition", numbers)
    tempered = _last(after, BEFORE).softmax(-1)
    # Temperature keeps the order, and at 0 leaves nothing to order by.
    order = penalised.sort(descending=True, stable=True).indices
    seen = _last(after, (*BEFORE, "top_k"))  # by top-p
    reached = seen[order].softmax(-1).cumsum(-1)
    left = stages[-1][1] if stages else numbers
    probabilities, chances, kept = numbers.softmax(-1), left.softmax(-1), left > -math.inf
    listed = list(enumerate(order[:top].tolist()))
    if chosen is not None and chosen not in (token for _, token in listed):
        listed.append((int((order == chosen).nonzero()), chosen))
    bars = tuple(
        CandidateToken(
            token=token,
            text=spell(token),
            probability=float(probabilities[token]),
            tempered=float(tempered[token]),
            reached=float(reached[place]) if float(seen[token]) > -math.inf else None,
            chance=float(chances[token]),
            by=next((name for name, one in stages if float(one[token]) == -math.inf), None),
        )
        for place, token in listed
    )
    return CandidateTokens(bars, chosen, int(kept.sum()), float(tempered[kept].sum()), len(numbers))


def _last(after: dict[str, Tensor], names: Sequence[str]) -> Tensor:
    return next((after[name] for name in reversed(names) if name in after), after[""])
