"""Compares predictions of masked language models at a blank: two sentences, a grid, a range, or word by word.

Values are log-probabilities over the whole vocabulary, so that a difference is the logarithm of how many times likelier
a token is. Logits, which the explorable "What Have Language Models Learned?" shows, are also available: they lack the
normalizer, which differs between sentences, so their differences may have another sign. The page draws the charts;
which tokens a chart shows is decided here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import PrivateAttr

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.escaping import escape_controls
from regard.interpret.masked_lm.charts import (
    CHARTS,
    Chart,
    ChartAxes,
    ChartsView,
    CompareResult,
    CompletionsView,
    PairView,
    SentenceView,
    SquareView,
    caption,
    contrast_labels,
    notable_words,
    sentence_of,
)
from regard.interpret.masked_lm.predictions import (
    Indices,
    MaskedPrediction,
    MaskedPredictions,
    MaskedWord,
    Slot,
    ValueKind,
    complete_words,
    parse_template,
    predict_blanks,
    read_predictions,
    short_name,
    top_indices,
)
from regard.interpret.masked_lm.sweep import compare_sweep
from regard.render.page_arrays import encode_float32
from regard.render.terminal import padded

PairKind: TypeAlias = Literal["sentences", "models", "cells"]
Values: TypeAlias = NDArray[np.float64]

ALL = 0  # stands for every token
TOKEN_COUNTS = (30, 200, 1000, 5000, ALL)
FEWER_TOKEN_COUNTS = (30, 200, 1000)  # for grids of more than WHOLE sentences, which do not fit a page whole
WHOLE = 12
SWEEP_TOKENS = 150
MAX_CELLS = 64  # sentences of a grid
LISTED = 15  # completions of a word in the terminal


@dataclass(frozen=True, eq=False)
class PairComparison:
    """Two predictions over the same tokens; `kind` is what the labels name."""

    tokens: Sequence[str]
    a: MaskedPrediction
    b: MaskedPrediction
    labels: tuple[str, str]
    kind: PairKind = "sentences"
    values: ValueKind = "log-probabilities"

    @cached_property
    def mean(self) -> Values:
        return (self.a.values.astype(np.float64) + self.b.values) / 2

    @cached_property
    def difference(self) -> Values:
        """The value in `a` minus that in `b`."""
        return self.a.values.astype(np.float64) - self.b.values

    @cached_property
    def order(self) -> Indices:
        """All tokens, the highest mean first."""
        return np.argsort(-self.mean, kind="stable")

    def extent(self, number: int) -> tuple[float, float]:
        """The range of values that contains the `number` likeliest tokens of either sentence, in both."""
        top = np.union1d(top_indices(self.a.values, number), top_indices(self.b.values, number))
        both = np.stack([self.a.values[top], self.b.values[top]])
        return float(both.min()), float(both.max())

    def visible(self, number: int, chart: Chart) -> Indices:
        """The tokens of a chart, the highest mean first.

        "differences" shows the `number` highest means. "likelihoods" shows all that lie in `extent` in both sentences:
        more than `number` if a likely token of one is unlikely in the other.
        """
        if chart == "differences":
            return self.order[:number] if number else self.order
        low = self.extent(number)[0]
        lower = np.minimum(self.a.values, self.b.values)
        return self.order[lower[self.order] >= low]

    def caption(self, number: int, chart: Chart) -> str:
        """The words of the chart that differ most to either side, in a sentence."""
        visible = self.visible(number, chart)
        tokens = [self.tokens[index] for index in visible.tolist()]
        texts = (self.a.text, self.b.text)
        more_a, more_b = (
            notable_words(tokens, one.probabilities[visible], sign * self.difference[visible], texts)
            for one, sign in ((self.a, 1), (self.b, -1))
        )
        name = self.a.model if self.a.model == self.b.model else None
        return caption(name, self.a.text, self.labels, more_a, more_b)

    def axes(self) -> dict[Chart, ChartAxes]:
        """The axis labels of both charts; the first of two sentences goes up, and the second of two cells."""
        a, b = self.labels
        if self.kind == "cells":
            return {
                "likelihoods": ChartAxes(right=f"{a} →", up=f"{b} →"),
                "differences": ChartAxes(right=f"{a} + {b} →", up=f"{b} →", down=f"← {a}"),
            }
        if self.kind == "sentences":
            a, b = sentence_of(a), sentence_of(b)
        return {
            "likelihoods": ChartAxes(right=f"__ likelihood, {b} →", up=f"__ likelihood, {a} →"),
            "differences": ChartAxes(
                right=f"__ likelihood, both {self.kind} →",
                up=f"Higher likelihood, {a} →",
                down=f"← Higher likelihood, {b}",
            ),
        }

    def view(self, a: int, b: int, counts: Sequence[int]) -> PairView:
        """The pair of the sentences `a` and `b` with the ranges and captions of each number of tokens."""
        return PairView(
            a=a,
            b=b,
            labels=self.labels,
            axes=self.axes(),
            extents={str(number): self.extent(number) for number in counts},
            captions={chart: {str(n): self.caption(n, chart) for n in counts} for chart in CHARTS},
        )

    def result(self, number: int, chart: Chart) -> PairResult:
        visible = self.visible(number, chart)
        columns = self.a.values, self.b.values, self.a.probabilities, self.b.probabilities, self.mean, self.difference
        rows = zip(*(column[visible].tolist() for column in columns), strict=True)
        tokens = [TokenDifference(self.tokens[i], *row) for i, row in zip(visible.tolist(), rows, strict=True)]
        text = self.caption(number, chart)
        result = PairResult(
            a=self.a.text, b=self.b.text, labels=self.labels, values=self.values, caption=text, tokens=tokens
        )
        result._listed = number or len(tokens)
        predictions = MaskedPredictions(list(self.tokens), [self.a, self.b], self.values)
        result._view = lambda: _charts_view(predictions, {(0, 1): self}, TOKEN_COUNTS, number=number, chart=chart)
        return result


@dataclass(frozen=True)
class TokenDifference:
    """One token in two sentences."""

    token: str
    value_a: float
    value_b: float
    probability_a: float
    probability_b: float
    mean: float
    difference: float


class PairResult(CompareResult):
    """Two sentences (or models, or cells of a grid), token by token, the highest mean first.

    `values` are log-probabilities or logits; `mean` and `difference` are of these.
    """

    a: str
    b: str
    labels: tuple[str, str]
    values: ValueKind
    caption: str
    tokens: list[TokenDifference]
    _listed: int = PrivateAttr(TOKEN_COUNTS[0])  # tokens in the terminal

    def to_text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        a, b = map(escape_controls, self.labels)
        listed = self.tokens[: self._listed]
        heading, *words = padded(["token", *(one.token for one in listed)])
        yield self.caption
        yield ""
        first, second = max(len(a), 9), max(len(b), 9)
        yield f"  {heading}  {a:>{first}}  {b:>{second}}  difference of {self.values}"
        for word, one in zip(words, listed, strict=True):
            probabilities = f"{one.probability_a:{first}.3%}  {one.probability_b:{second}.3%}"
            yield f"  {word}  {probabilities}  {one.difference:+10.2f}"
        if len(self.tokens) > len(listed):
            yield f"  and {len(self.tokens) - len(listed):,} more in the chart, which --json and --output have"


@dataclass(frozen=True)
class TokenSecondDifference:
    """One token: the differences of two pairs, and the difference of these."""

    token: str
    difference_a: float
    difference_b: float
    difference: float


@dataclass(frozen=True)
class SecondDifference:
    """Two pairs of cells that differ in the same way, the tokens with the greatest second difference first."""

    a: tuple[str, str]
    b: tuple[str, str]
    tokens: list[TokenSecondDifference]


class GridResult(CompareResult):
    """All sentences of a template: the pairs in its rows and columns, and the differences of their differences."""

    template: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    pairs: list[PairResult]
    differences: list[SecondDifference]

    def to_text(self) -> str:
        pairs = [f"{pair.to_text()}\n" for pair in self.pairs]
        return "\n".join([*pairs, "--json and --output have the differences of differences too"])


def compare_grid(
    text: str,
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    predictions: MaskedPredictions,
    number: int,
    chart: Chart,
) -> GridResult:
    """The predictions for a template of two slots, row by row; a template of one slot has one row without a name.

    `In [1908|2018], [he|she] was employed as a _.` has rows (1908, 2018) and columns (he, she): a pair in every row and
    in every column, and two second differences, which compare pair with pair.
    """
    labels = [" / ".join(name for name in (row, column) if name) for row in rows for column in columns]
    width, cells = len(columns), range(len(labels))
    across = [pair for row in range(len(rows)) for pair in combinations(cells[row * width :][:width], 2)]
    down = [pair for column in range(width) for pair in combinations(cells[column::width], 2)]
    pairs = {
        (a, b): PairComparison(
            predictions.tokens,
            predictions.rows[a],
            predictions.rows[b],
            (labels[a], labels[b]),
            "cells",
            predictions.values,
        )
        for a, b in across + down
    }
    squares = []  # pairs of pairs that differ in the same way: first the rows' differences, then the columns'
    for above, below in combinations(range(len(rows)), 2):
        for left, right in combinations(range(width), 2):
            a, b, c, d = (row * width + column for row in (above, below) for column in (left, right))
            squares += [((a, b), (c, d)), ((a, c), (b, d))]

    def view() -> ChartsView:
        counts = TOKEN_COUNTS if len(labels) <= WHOLE else FEWER_TOKEN_COUNTS
        indices = {cells: index for index, cells in enumerate(pairs)}
        views = []
        for across, up in squares:
            left, right, bottom, top = (labels[cell] for cell in (*across, *up))
            axes = ChartAxes(left=f"← {left}", right=f"{right} →", down=f"← {bottom}", up=f"{top} →")
            views.append(SquareView(across=indices[across], up=indices[up], axes=axes))
        charts = _charts_view(predictions, pairs, counts, number=number, chart=chart)
        names = {"rows": list(rows), "columns": list(columns)}
        return charts.model_copy(update={"kind": "grid", "squares": views, **names})

    result = GridResult(
        template=text,
        rows=rows,
        columns=columns,
        pairs=[pair.result(number, chart) for pair in pairs.values()],
        differences=[second_difference(pairs[one], pairs[other], number) for one, other in squares],
    )
    result._view = view
    return result


def second_difference(first: PairComparison, second: PairComparison, number: int) -> SecondDifference:
    """The differences of two pairs and the difference of these, for the `number` tokens of highest mean in either."""
    both = np.union1d(top_indices(first.mean, number), top_indices(second.mean, number))
    change = first.difference - second.difference
    order = both[np.argsort(-np.abs(change[both]), kind="stable")]
    columns = (column[order].tolist() for column in (first.difference, second.difference, change))
    rows = zip(order.tolist(), *columns, strict=True)
    tokens = [TokenSecondDifference(first.tokens[index], *row) for index, *row in rows]
    return SecondDifference(first.labels, second.labels, tokens)


def _charts_view(
    predictions: MaskedPredictions,
    pairs: dict[tuple[int, int], PairComparison],
    counts: Sequence[int],
    *,
    number: int,
    chart: Chart,
) -> ChartsView:
    visible = np.arange(len(predictions.tokens))
    if ALL not in counts:
        visible = reduce(np.union1d, [pair.visible(max(counts), chart) for pair in pairs.values() for chart in CHARTS])
    return ChartsView(
        kind="pair",
        values=predictions.values,
        number=number,
        chart=chart,
        numbers=list(counts),
        tokens=[predictions.tokens[index] for index in visible.tolist()],
        sentences=[
            SentenceView(text=one.text, model=one.model, total=one.total, values=encode_float32(one.values[visible]))
            for one in predictions.rows
        ],
        pairs=[pair.view(a, b, counts) for (a, b), pair in pairs.items()],
    )


class CompletionsResult(CompareResult):
    """One sentence, each of its words masked in turn."""

    text: str
    model: str
    words: list[MaskedWord]

    def to_text(self) -> str:
        lines = []
        for word in self.words:
            listed = ", ".join(f"{one.token} {one.probability:.3%}" for one in word.completions[:LISTED])
            lines.append(f"{word.word}: {listed}")
        return "\n".join(lines)


def compare_models(
    texts: Sequence[str],
    models: Sequence[LoadedModel],
    *,
    number: int | None = None,
    chart: Chart = "likelihoods",
    values: ValueKind = "log-probabilities",
) -> CompareResult:
    """Compare one or two sentences with one model, or two models with each other.

    What varies decides the form of the result: nothing, the words of one sentence; one thing, a pair or a row; two
    things, a grid. A thing that varies is a slot `[he|she]`, the two texts, or the two models; a slot `[1860..2018]`
    makes a sweep. `number` of tokens is 30 by default, 150 in a sweep; 0 is all.
    """
    templates = [parse_template(text) for text in texts]
    slots = list(templates[0].slots)
    if len(texts) == 2:
        if any(template.slots for template in templates):
            raise InputError("slots such as [he|she] belong in a single sentence; give one text, or two without slots")
        slots = [Slot(contrast_labels(*texts), is_range=False)]
    if len(models) == 2:
        slots.insert(0, Slot(tuple(short_name(one) for one in models), is_range=False))
    if not slots:
        words, name = complete_words(models[0], texts[0]), short_name(models[0])
        completions = CompletionsResult(text=texts[0], model=name, words=words)
        completions._view = lambda: CompletionsView(text=texts[0], model=name, words=words)
        return completions
    _check_slots(slots)
    predictions = predict_blanks(models, texts if len(texts) == 2 else templates[0].sentences(), values)
    if any(slot.is_range for slot in slots):
        return compare_sweep(texts[0], slots, predictions, SWEEP_TOKENS if number is None else number)
    count = TOKEN_COUNTS[0] if number is None else number
    if len(slots) == 1 and len(slots[0].values) == 2:
        (a, b), (first, second) = slots[0].values, predictions.rows
        kind: PairKind = "models" if len(models) == 2 else "sentences"
        pair = PairComparison(predictions.tokens, first, second, (a, b), kind, values)
        return pair.result(count, chart)
    rows = slots[0].values if len(slots) == 2 else ("",)
    return compare_grid(" / ".join(texts), rows, slots[-1].values, predictions, count, chart)


def compare_stored(
    paths: Sequence[str | os.PathLike[str]],
    vocabulary: str | os.PathLike[str],
    *,
    texts: Sequence[str] | None = None,
    number: int | None = None,
    chart: Chart = "likelihoods",
    values: ValueKind = "log-probabilities",
) -> PairResult:
    """Compare two files of logits. `texts` are their sentences; by default made from the file names."""
    if texts and len(texts) != 2:
        raise InputError("expected two files of logits, and two sentences for them or none")
    predictions = read_predictions(paths, vocabulary, texts=texts or None, values=values)
    a, b = predictions.rows
    pair = PairComparison(predictions.tokens, a, b, contrast_labels(a.text, b.text), values=values)
    return pair.result(TOKEN_COUNTS[0] if number is None else number, chart)


def _check_slots(slots: Sequence[Slot]) -> None:
    if len(slots) > 2:
        raise InputError(
            f"{len(slots)} things vary, and at most two can: two slots such as [he|she], or one slot or two "
            "sentences with two models"
        )
    ranges = [slot for slot in slots if slot.is_range]
    fixed = [len(slot.values) for slot in slots if not slot.is_range]
    if len(ranges) == 2 or (ranges and fixed and fixed[0] != 2):
        raise InputError(
            "beside a range such as [1860..2018] there may be one slot of two words, such as [he|she], or two models; "
            f"here is {'another range' if not fixed else f'one of {fixed[0]}'}"
        )
    if not ranges and (cells := math.prod(fixed)) > MAX_CELLS:
        raise InputError(f"these are {cells} sentences, and a grid has at most {MAX_CELLS}; leave some out")
