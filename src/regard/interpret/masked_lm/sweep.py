"""One template over a range of numbers, mostly years: how the difference of two words moves along it.

Knows answers and their numbers; knows no model and no pixel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.interpret.masked_lm.pair import top_indices
from regard.interpret.masked_lm.predictions import MaskedPredictions

__all__ = ["SERIES", "ComparisonSweep", "make_sweep"]

SERIES = 150  # tokens, unless a number is asked for


@dataclass(frozen=True, eq=False)
class ComparisonSweep:
    """`series` (tokens, values): for two labels the logit with the first less that with the second, for one the logit.

    `means`: each token's logit over all sentences, by which the tokens were chosen and are ordered.
    """

    text: str
    values: tuple[int, ...]
    labels: tuple[str, ...]
    tokens: list[str]
    means: list[float]
    series: NDArray[np.float64]
    model_name: str

    @property
    def caption(self) -> str:
        if len(self.labels) < 2:
            return f"{self.model_name}: the logit of the {len(self.tokens)} likeliest tokens, {self._range}."
        ends = np.abs(self.series[:, [0, -1]]).mean(0)
        return (
            f"{self.model_name}: the logit with {self.labels[0]} less the logit with {self.labels[1]} for the "
            f"{len(self.tokens)} likeliest tokens, {self._range}. On average the two are {ends[0]:.2f} apart at "
            f"{self.values[0]} and {ends[1]:.2f} at {self.values[-1]}."
        )

    @property
    def _range(self) -> str:
        return f"{self.values[0]} to {self.values[-1]}"

    def document(self) -> dict[str, object]:
        """What `regard compare --json` prints of a sweep."""
        name = "differences" if len(self.labels) == 2 else "logits"
        return {
            "template": self.text,
            "values": list(self.values),
            "labels": list(self.labels),
            "caption": self.caption,
            "tokens": [
                {"token": token, "mean": mean, name: row}
                for token, mean, row in zip(self.tokens, self.means, self.series.tolist(), strict=True)
            ],
        }


def make_sweep(
    text: str, values: tuple[int, ...], labels: tuple[str, ...], told: MaskedPredictions, number: int
) -> ComparisonSweep:
    """Choose the `number` tokens of the highest mean logit (0: all). Answers come value by value, label by label."""
    logits = np.stack([answer.logits for answer in told.rows]).reshape(len(values), len(labels), -1)
    mean = logits.mean((0, 1), dtype=np.float64)
    places = top_indices(mean, number)
    chosen = logits[:, :, places].astype(np.float64)
    series = chosen[:, 0] - chosen[:, 1] if len(labels) == 2 else chosen[:, 0]
    tokens = [told.tokens[place] for place in places.tolist()]
    return ComparisonSweep(text, values, labels, tokens, mean[places].tolist(), series.T, told.model_name)
