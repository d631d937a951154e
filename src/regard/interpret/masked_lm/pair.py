"""Two sentences with the same blank, token by token: which words does a model like more in which?

Knows logits and which tokens a chart shows of them. Knows no model, no file and no pixel. The values are logits, since
differences of logits are logarithms of odds; probabilities, over the whole vocabulary, stand beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError, check_choice
from regard.interpret.masked_lm.predictions import MaskedPrediction
from regard.interpret.masked_lm.templates import caption, sentence_of

__all__ = [
    "ALL",
    "CHARTS",
    "TOKEN_COUNTS",
    "Chart",
    "PairComparison",
    "PairKind",
    "check_chart",
    "second_differences",
    "top_indices",
]

Chart: TypeAlias = Literal["likelihoods", "differences"]
PairKind: TypeAlias = Literal["sentences", "models", "cells"]
Places: TypeAlias = NDArray[np.int64]
Values: TypeAlias = NDArray[np.float64]

CHARTS: tuple[str, ...] = get_args(Chart)
ALL = 0  # the number that stands for every token
TOKEN_COUNTS = (30, 200, 1000, 5000, ALL)
NAMED = 5  # tokens that a caption names on either side
PALETTE = 0.8  # of the greatest difference: from there on the colour is full


@dataclass(frozen=True, eq=False)
class PairComparison:
    """Two answers over the same tokens. `called` is the model in a caption; `kind`: what the labels are names of."""

    tokens: Sequence[str]
    a: MaskedPrediction
    b: MaskedPrediction
    labels: tuple[str, str]
    model_name: str
    kind: PairKind = "sentences"

    @cached_property
    def mean(self) -> Values:
        return (self.a.logits.astype(np.float64) + self.b.logits) / 2

    @cached_property
    def difference(self) -> Values:
        """The logit in `a` less that in `b`."""
        return self.a.logits.astype(np.float64) - self.b.logits

    @cached_property
    def order(self) -> Places:
        """All tokens, the highest mean first."""
        return np.argsort(-self.mean, kind="stable")

    def extent(self, number: int) -> tuple[float, float]:
        """The range of logits that holds the `number` likeliest tokens of either sentence, in both."""
        top = np.union1d(top_indices(self.a.logits, number), top_indices(self.b.logits, number))
        both = np.stack([self.a.logits[top], self.b.logits[top]])
        return float(both.min()), float(both.max())

    def visible(self, number: int, chart: Chart) -> Places:
        """The tokens of a chart, the highest mean first.

        "differences" shows the `number` highest means. "likelihoods" shows all that lie in `extent` in both sentences:
        more than `number` where a likely token of one is unlikely in the other.
        """
        if chart == "differences":
            return self.order[:number] if number else self.order
        low = self.extent(number)[0]
        lower = np.minimum(self.a.logits, self.b.logits)
        return self.order[lower[self.order] >= low]

    def caption(self, number: int, chart: Chart) -> str:
        """The tokens of the chart that lean most to either side, in a sentence."""
        places = self.visible(number, chart)
        by = places[np.argsort(-self.difference[places], kind="stable")]
        more_a = [self.tokens[place] for place in by[:NAMED] if self.difference[place] > 0]
        more_b = [self.tokens[place] for place in by[::-1][:NAMED] if self.difference[place] < 0]
        called = self.model_name if self.a.model == self.b.model else None
        return caption(called, self.a.text, self.labels, more_a, more_b)

    def axes(self) -> dict[str, dict[str, str]]:
        """The labels of both charts; of two sentences the first goes up, of a grid's cells the second does."""
        a, b = self.labels
        if self.kind == "cells":
            return {
                "likelihoods": {"right": f"{a} →", "up": f"{b} →"},
                "differences": {"right": f"{a} + {b} →", "up": f"{b} →", "down": f"← {a}"},
            }
        if self.kind == "sentences":
            a, b = sentence_of(a), sentence_of(b)
        return {
            "likelihoods": {"right": f"__ likelihood, {b} →", "up": f"__ likelihood, {a} →"},
            "differences": {
                "right": f"__ likelihood, both {self.kind} →",
                "up": f"Higher likelihood, {a} →",
                "down": f"← Higher likelihood, {b}",
            },
        }

    def document(self, number: int, chart: Chart) -> dict[str, object]:
        """What `regard compare --json` prints of two sentences."""
        places = self.visible(number, chart)
        columns: dict[str, NDArray[np.floating]] = {
            "logit_a": self.a.logits,
            "logit_b": self.b.logits,
            "probability_a": self.a.probabilities,
            "probability_b": self.b.probabilities,
            "mean": self.mean,
            "difference": self.difference,
        }
        listed = {name: values[places].tolist() for name, values in columns.items()}
        return {
            "a": self.a.text,
            "b": self.b.text,
            "labels": list(self.labels),
            "caption": self.caption(number, chart),
            "tokens": [
                {"token": self.tokens[place]} | {name: values[row] for name, values in listed.items()}
                for row, place in enumerate(places.tolist())
            ],
        }


def second_differences(first: PairComparison, second: PairComparison, number: int) -> tuple[Places, Values]:
    """The difference of differences of two pairs, (first, second, first less second) a token, and which to show.

    Those are the `number` of highest mean in either pair, the greatest difference of differences first.
    """
    both = np.union1d(top_indices(first.mean, number), top_indices(second.mean, number))
    change = first.difference - second.difference
    places = both[np.argsort(-np.abs(change[both]), kind="stable")]
    return places, np.stack([first.difference[places], second.difference[places], change[places]], axis=1)


def top_indices(values: NDArray[np.floating], number: int) -> Places:
    """The places of the `number` highest values, the highest first; of equals the earlier; 0 means all."""
    order = np.argsort(-values, kind="stable")
    return order[:number] if number else order


def check_chart(number: int, chart: str) -> Chart:
    """Refuse a number below 0 and a chart that does not exist."""
    if number < 0:
        raise InputError(
            f"the number of tokens is {number}; expected {', '.join(map(str, TOKEN_COUNTS[:-1]))} or 0 for all"
        )
    check_choice("chart", chart, CHARTS)
    return "likelihoods" if chart == "likelihoods" else "differences"
