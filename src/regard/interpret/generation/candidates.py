"""The candidates for the next token: the likeliest tokens at one position, and which of them the filters keep.

Works on logits and the stages of `Sampling`; a function turns tokens into text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from regard.inference.generation.trace import Trace

TOP = 15  # candidates at a position
RESCALING = ("repetition", "temperature")  # filters that move probability and, above temperature 0, remove none
Stages = Sequence[tuple[str, Tensor]]


@dataclass(frozen=True)
class CandidateToken:
    """One candidate for the next token.

    `probability` is the model's own, `tempered` that after repetition penalty and temperature, `chance` that after all
    filters: 0 if one of them, `by`, removed the token. `reached` is the cumulative probability of this token and the
    likelier ones among those that top-p chooses from; None if another filter had removed the token before.
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
    """The likeliest tokens at one position, likeliest first, then the chosen one if it is not among them.

    `kept` tokens of the whole vocabulary pass the filters; they have `share` of the tempered probability.
    """

    bars: tuple[CandidateToken, ...]
    chosen: int | None
    kept: int
    share: float
    vocabulary: int


@dataclass(frozen=True)
class GeneratedToken:
    """One generated token: `text` is what it adds to the text, `name` the token by itself."""

    id: int
    text: str
    name: str
    candidates: CandidateTokens


def candidate_tokens(
    logits: Tensor, stages: Stages, *, spell: Callable[[int], str], chosen: int | None = None, top: int = TOP
) -> CandidateTokens:
    """The candidates for logits (V,), given the logits after each filter (`Sampling.stages`)."""
    logits = logits.double()
    after = {"": logits, **dict(stages)}
    penalized = after.get("repetition", logits)
    tempered = _last(after, RESCALING).softmax(-1)
    # Temperature keeps the order, and at 0 leaves nothing to order by.
    order = penalized.sort(descending=True, stable=True).indices
    nucleus_input = _last(after, (*RESCALING, "top_k"))
    cumulative = nucleus_input[order].softmax(-1).cumsum(-1)
    filtered = stages[-1][1] if stages else logits
    probabilities, chances, kept = logits.softmax(-1), filtered.softmax(-1), filtered > -math.inf
    listed = list(enumerate(order[:top].tolist()))
    if chosen is not None and chosen not in (token for _, token in listed):
        listed.append((int((order == chosen).nonzero()), chosen))
    candidates = tuple(
        CandidateToken(
            token=token,
            text=spell(token),
            probability=float(probabilities[token]),
            tempered=float(tempered[token]),
            reached=float(cumulative[rank]) if float(nucleus_input[token]) > -math.inf else None,
            chance=float(chances[token]),
            by=next((name for name, one in stages if float(one[token]) == -math.inf), None),
        )
        for rank, token in listed
    )
    return CandidateTokens(candidates, chosen, int(kept.sum()), float(tempered[kept].sum()), len(logits))


def _last(after: dict[str, Tensor], names: Sequence[str]) -> Tensor:
    return next((after[name] for name in reversed(names) if name in after), after[""])


class CandidateRecorder(Trace):
    """Records the candidates of every sampled token, until the text of the tokens is known."""

    def __init__(self, spell: Callable[[int], str]) -> None:
        super().__init__(token_text=spell)
        self.spell = spell
        self.pending: list[tuple[int, CandidateTokens]] = []

    def sample(
        self, row: int, logits: Tensor, stages: Sequence[tuple[str, Tensor]], token: int, *, end: int | None
    ) -> None:
        self.pending.append((token, candidate_tokens(logits, stages, spell=self.spell, chosen=token)))

    def take(self, piece: str) -> list[GeneratedToken]:
        """The tokens since the last piece of text; the piece belongs to the last of them."""
        last = len(self.pending) - 1
        tokens = [
            GeneratedToken(token, piece if number == last else "", self.spell(token), candidates)
            for number, (token, candidates) in enumerate(self.pending)
        ]
        self.pending = []
        return tokens
