"""Why a text was found: what adds up to its score.

BM25 by the words of the query, sparse vectors by its tokens, hybrid search by the ranks of its parts: these sum to the
score exactly, from the first to the last. What a model computes from a text as a whole, the vectors of dense search and
the output of a reranker, is attributed to the tokens of the text by `interpret.search_hits`, with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict

from regard.escaping import escape_controls
from regard.inference.search.bm25 import RANK_CONSTANT, bm25_contributions
from regard.inference.search.exact import Positions, Ranking
from regard.inference.search.inverted import SparsePostings, SparseRow, contributions

if TYPE_CHECKING:
    from regard.inference.search.bm25 import Postings

EXACT = ("bm25", "splade", "hybrid", "maxsim")
MAX_PARTS = 8  # on a line of the terminal


class ScorePart(BaseModel):
    """A word, a token or the rank in a method, and what it adds to the score."""

    model_config = ConfigDict(frozen=True)

    name: str
    contribution: float


class Explanation(BaseModel):
    """What adds up to `value`: the score of `method`, or for a reranker the logit that texts are ordered by.

    The contributions sum, from the first to the last, to `value` - `baseline_value` + `completeness_error`. The last
    two are 0 for bm25, splade, hybrid and maxsim; otherwise `baseline_value` is that of a text without content.
    """

    model_config = ConfigDict(frozen=True)

    method: str
    value: float
    parts: list[ScorePart]
    baseline_value: float = 0.0
    completeness_error: float = 0.0
    note: str = ""  # why there are no parts, where a text cannot be explained

    def to_text(self) -> str:
        if self.note:
            return f"{self.method}: not explained: {self.note}"
        largest = sorted(self.parts, key=lambda one: -abs(one.contribution))
        listed = [f"{escape_controls(one.name)} {one.contribution:+.3g}" for one in largest[:MAX_PARTS]]
        more = [f"and {len(largest) - MAX_PARTS} more"] if len(largest) > MAX_PARTS else []
        exact = self.method in EXACT
        error = "" if exact else f"; without content {self.baseline_value:.3g}, error {self.completeness_error:+.2g}"
        return f"{self.method}: {', '.join(listed + more) or 'nothing'}{error}"


Explainer = Callable[[str, Sequence[str]], list[Explanation]]  # of a query and texts, by what models compute


def explain_bm25(query: str, parts: Sequence[Postings], positions: Positions) -> list[Explanation]:
    """The contribution of each different word of the query that a text has."""
    found: list[list[ScorePart]] = [[] for _ in positions]
    for word, rows, values in bm25_contributions(query, parts):
        order = np.searchsorted(rows, positions)
        for number, (place, position) in enumerate(zip(order.tolist(), positions.tolist(), strict=True)):
            if place < len(rows) and rows[place] == position:
                found[number].append(ScorePart(name=word, contribution=float(values[place])))
    return [_exact("bm25", one) for one in found]


def explain_sparse(
    query: SparseRow, parts: Sequence[SparsePostings], positions: Positions, tokens: Sequence[str]
) -> list[Explanation]:
    """The contribution of each token of the query that a text has; `tokens` are the names of all."""
    names = [tokens[index] for index in query.indices]
    return [
        _exact("splade", [ScorePart(name=n, contribution=v) for n, v in zip(names, row, strict=True) if v])
        for row in contributions(query, parts, positions).tolist()
    ]


def explain_fusion(rankings: Sequence[tuple[str, Ranking]], positions: Positions) -> list[Explanation]:
    """The reciprocal rank of each text in the rankings, in their order."""
    ranks = {method: {int(one): rank for rank, one in enumerate(found.positions, 1)} for method, found in rankings}
    return [
        _exact(
            "hybrid",
            [
                ScorePart(name=f"{method} rank {of[position]}", contribution=1 / (RANK_CONSTANT + of[position]))
                for method, of in ranks.items()
                if position in of
            ],
        )
        for position in positions.tolist()
    ]


def _exact(method: str, parts: list[ScorePart]) -> Explanation:
    value = 0.0
    for one in parts:
        value += one.contribution
    return Explanation(method=method, value=value, parts=parts)
