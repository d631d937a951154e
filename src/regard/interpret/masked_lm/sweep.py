"""Predictions at a blank along a range of numbers, mostly years: one line per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.interpret.masked_lm.charts import CompareResult, SweepView
from regard.interpret.masked_lm.predictions import MaskedPredictions, Slot, ValueKind, top_indices
from regard.render.page_arrays import encode_float32
from regard.render.terminal import padded

LISTED = 15  # rows in the terminal


@dataclass(frozen=True)
class SweepToken:
    """One token along a range: its values or, with two labels, the values with the first minus those with the second.

    `mean` is over all sentences.
    """

    token: str
    mean: float
    series: list[float]


class SweepResult(CompareResult):
    """A template over a range of `numbers`, mostly years; tokens are chosen and ordered by their mean value."""

    template: str
    numbers: tuple[int, ...]
    labels: tuple[str, ...]
    values: ValueKind
    caption: str
    tokens: list[SweepToken]

    def to_text(self) -> str:
        """The tokens whose value changes most between the ends of the range."""
        most = sorted(self.tokens, key=lambda one: -abs(one.series[-1] - one.series[0]))[:LISTED]
        heading, *names = padded(["", *(one.token for one in most)])
        lines = [self.caption, "", f"  {heading}  {self.numbers[0]:>8}  {self.numbers[-1]:>8}"]
        for name, one in zip(names, most, strict=True):
            lines.append(f"  {name}  {one.series[0]:+8.2f}  {one.series[-1]:+8.2f}")
        return "\n".join(lines)

    def _sweep_view(self) -> SweepView:
        return SweepView(
            numbers=list(self.numbers),
            labels=list(self.labels),
            values=self.values,
            caption=self.caption,
            tokens=[one.token for one in self.tokens],
            series=encode_float32(np.array([one.series for one in self.tokens])),
        )


def compare_sweep(text: str, slots: Sequence[Slot], predictions: MaskedPredictions, number: int) -> SweepResult:
    """The tokens of highest mean value along a range.

    `slots` are the range and at most one slot of two labels, in the order of the predictions.
    """
    axis = next(index for index, slot in enumerate(slots) if slot.is_range)
    numbers = tuple(int(value) for value in slots[axis].values)
    labels: tuple[str, ...] = next((slot.values for slot in slots if not slot.is_range), ())
    values = np.stack([row.values for row in predictions.rows])
    values = np.moveaxis(values.reshape([*(len(slot.values) for slot in slots), -1]), axis, 0)
    values = values.reshape(len(numbers), len(labels) or 1, -1)
    mean = values.mean((0, 1), dtype=np.float64)
    top = top_indices(mean, number)
    chosen = values[:, :, top].astype(np.float64)
    series = chosen[:, 0] - chosen[:, 1] if labels else chosen[:, 0]
    names = (predictions.tokens[index] for index in top.tolist())
    result = SweepResult(
        template=text,
        numbers=numbers,
        labels=labels,
        values=predictions.values,
        caption=_caption(predictions, numbers, labels, series),
        tokens=[SweepToken(*one) for one in zip(names, mean[top].tolist(), series.T.tolist(), strict=True)],
    )
    result._view = result._sweep_view
    return result


def _caption(
    predictions: MaskedPredictions, numbers: Sequence[int], labels: Sequence[str], series: NDArray[np.float64]
) -> str:
    """`series` is (numbers, tokens)."""
    value = {"log-probabilities": "log-probability", "logits": "logit"}[predictions.values]
    count, between, model = series.shape[1], f"{numbers[0]} to {numbers[-1]}", predictions.rows[0].model
    if not labels:
        return f"{model}: the {value} of the {count} likeliest tokens, {between}."
    first, last = np.abs(series[[0, -1]]).mean(1)
    whose = "" if model in labels else f"{model}: "
    return (
        f"{whose}the {value} with {labels[0]} minus that with {labels[1]} for the {count} likeliest tokens, "
        f"{between}. On average the two are {first:.2f} apart at {numbers[0]} and {last:.2f} at {numbers[-1]}."
    )
