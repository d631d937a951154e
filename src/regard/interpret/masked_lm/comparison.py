"""Compares predictions of masked language models at a blank: two sentences, a grid, a range, or word by word.

Values are logits, since differences of logits are log odds ratios; probabilities are over the whole vocabulary. The
page draws the charts; which tokens a chart shows is decided here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations
from typing import ClassVar, Literal, NotRequired, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import PrivateAttr
from rich.cells import cell_len
from typing_extensions import TypedDict

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError, check_choice
from regard.escaping import escape_controls
from regard.interpret.masked_lm.predictions import (
    WARNING,
    MaskedPrediction,
    MaskedPredictions,
    MaskedWord,
    Slot,
    caption,
    complete_words,
    contrast_labels,
    parse_template,
    predict_blanks,
    read_predictions,
    sentence_of,
    short_name,
)
from regard.render.page_arrays import encode_float32
from regard.render.result import Result

Chart: TypeAlias = Literal["likelihoods", "differences"]
PairKind: TypeAlias = Literal["sentences", "models", "cells"]
Indices: TypeAlias = NDArray[np.int64]
Values: TypeAlias = NDArray[np.float64]

CHARTS: tuple[Chart, ...] = get_args(Chart)
ALL = 0  # stands for every token
TOKEN_COUNTS = (30, 200, 1000, 5000, ALL)
FEWER_TOKEN_COUNTS = (30, 200, 1000)  # for grids of more than WHOLE sentences, which do not fit a page whole
WHOLE = 12
SWEEP_TOKENS = 150
CAPTION_TOKENS = 5  # that a caption names on either side
FULL_COLOR = 0.8  # of the greatest difference: from there on the color is full
MAX_CELLS = 64  # sentences of a grid
LISTED = 15  # completions of a word, and rows of a sweep, in the terminal


@dataclass(frozen=True, eq=False)
class PairComparison:
    """Two predictions over the same tokens; `kind` is what the labels name, `model_name` the model in a caption."""

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
        """The logit in `a` minus that in `b`."""
        return self.a.logits.astype(np.float64) - self.b.logits

    @cached_property
    def order(self) -> Indices:
        """All tokens, the highest mean first."""
        return np.argsort(-self.mean, kind="stable")

    def extent(self, number: int) -> tuple[float, float]:
        """The range of logits that contains the `number` likeliest tokens of either sentence, in both."""
        top = np.union1d(_top(self.a.logits, number), _top(self.b.logits, number))
        both = np.stack([self.a.logits[top], self.b.logits[top]])
        return float(both.min()), float(both.max())

    def visible(self, number: int, chart: Chart) -> Indices:
        """The tokens of a chart, the highest mean first.

        "differences" shows the `number` highest means. "likelihoods" shows all that lie in `extent` in both sentences:
        more than `number` if a likely token of one is unlikely in the other.
        """
        if chart == "differences":
            return self.order[:number] if number else self.order
        low = self.extent(number)[0]
        lower = np.minimum(self.a.logits, self.b.logits)
        return self.order[lower[self.order] >= low]

    def caption(self, number: int, chart: Chart) -> str:
        """The tokens of the chart that differ most to either side, in a sentence."""
        visible = self.visible(number, chart)
        ordered = visible[np.argsort(-self.difference[visible], kind="stable")]
        more_a = [self.tokens[index] for index in ordered[:CAPTION_TOKENS] if self.difference[index] > 0]
        more_b = [self.tokens[index] for index in ordered[::-1][:CAPTION_TOKENS] if self.difference[index] < 0]
        name = self.model_name if self.a.model == self.b.model else None
        return caption(name, self.a.text, self.labels, more_a, more_b)

    def axes(self) -> dict[str, dict[str, str]]:
        """The axis labels of both charts; the first of two sentences goes up, and the second of two cells."""
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

    def result(self, number: int, chart: Chart) -> PairResult:
        visible = self.visible(number, chart)
        columns = (
            self.a.logits,
            self.b.logits,
            self.a.probabilities,
            self.b.probabilities,
            self.mean,
            self.difference,
        )
        rows = zip(*(values[visible].tolist() for values in columns), strict=True)
        tokens = [TokenDifference(self.tokens[i], *row) for i, row in zip(visible.tolist(), rows, strict=True)]
        made = PairResult(
            a=self.a.text, b=self.b.text, labels=self.labels, caption=self.caption(number, chart), tokens=tokens
        )
        made._pair, made._number = self, number
        return made


@dataclass(frozen=True, eq=False)
class Grid:
    """The predictions for a template of two slots, row by row; a template of one slot has one row without a name.

    `In [1908|2018], [he|she] was employed as a _.` has rows (1908, 2018) and columns (he, she): a pair in every row and
    in every column, and two second differences, which compare pair with pair.
    """

    text: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    predictions: MaskedPredictions

    def label(self, cell: int) -> str:
        row, column = divmod(cell, len(self.columns))
        return " / ".join(name for name in (self.rows[row], self.columns[column]) if name)

    def pairs(self) -> dict[tuple[int, int], PairComparison]:
        """Any two cells of a row, row by row; then any two of a column. Cells are numbered row by row."""
        width, cells = len(self.columns), range(len(self.rows) * len(self.columns))
        across = [pair for row in range(len(self.rows)) for pair in combinations(cells[row * width :][:width], 2)]
        down = [pair for column in range(width) for pair in combinations(cells[column::width], 2)]
        rows, common = self.predictions.rows, (self.predictions.tokens, self.predictions.model_name)
        return {
            (a, b): PairComparison(common[0], rows[a], rows[b], (self.label(a), self.label(b)), common[1], "cells")
            for a, b in across + down
        }

    def squares(self) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Pairs of pairs that differ in the same way: the rows' differences, then the columns', for any two of each."""
        width = len(self.columns)
        squares = []
        for above, below in combinations(range(len(self.rows)), 2):
            for left, right in combinations(range(width), 2):
                a, b, c, d = (row * width + column for row in (above, below) for column in (left, right))
                squares += [((a, b), (c, d)), ((a, c), (b, d))]
        return squares


def second_differences(first: PairComparison, second: PairComparison, number: int) -> tuple[Indices, Values]:
    """The differences of two pairs and the difference of these, for the `number` tokens of highest mean in either pair.

    The greatest second difference comes first.
    """
    both = np.union1d(_top(first.mean, number), _top(second.mean, number))
    change = first.difference - second.difference
    order = both[np.argsort(-np.abs(change[both]), kind="stable")]
    return order, np.stack([first.difference[order], second.difference[order], change[order]], axis=1)


def _top(values: NDArray[np.floating], number: int) -> Indices:
    """The indices of the `number` highest values (0: all), the highest first, then the earlier."""
    order = np.argsort(-values, kind="stable")
    return order[:number] if number else order


class ComparedRequest(TypedDict):
    """What was compared: `number` of tokens, in which chart."""

    texts: list[str]
    models: list[str]
    number: int
    chart: Chart


class AxisLabels(TypedDict):
    right: str
    up: str
    left: NotRequired[str]
    down: NotRequired[str]


class PairView(TypedDict):
    """Two sentences by their indices; `extents` is the range of logits, by number of tokens."""

    a: int
    b: int
    labels: tuple[str, str]
    axes: dict[Chart, AxisLabels]
    extents: dict[str, tuple[float, float]]
    captions: dict[Chart, dict[str, str]]


class SquareView(TypedDict):
    """The differences of two pairs against each other, by the indices of the pairs."""

    across: int
    up: int
    axes: AxisLabels


class ComparedSentence(TypedDict):
    """`logits` are float32 in base64, `total` their logarithmic sum over the whole vocabulary."""

    text: str
    model: str
    total: float
    logits: str


class ChartsView(TypedDict):
    """`numbers` of tokens can be shown, 0 means all. Differences above the fraction `palette` of the largest one have
    the full color. Only a grid has rows, columns and squares."""

    kind: Literal["pair", "grid"]
    request: ComparedRequest
    warning: str
    numbers: list[int]
    palette: float
    tokens: list[str]
    sentences: list[ComparedSentence]
    pairs: list[PairView]
    rows: NotRequired[list[str]]
    columns: NotRequired[list[str]]
    squares: NotRequired[list[SquareView]]


class SweepView(TypedDict):
    """`series` is float32 in base64."""

    kind: Literal["sweep"]
    request: ComparedRequest
    warning: str
    values: list[int]
    labels: list[str]
    caption: str
    tokens: list[str]
    series: str


class CompletionsView(TypedDict):
    kind: Literal["sentence"]
    request: ComparedRequest
    warning: str
    text: str
    model: str
    words: list[MaskedWord]


CompareView = ChartsView | SweepView | CompletionsView


class CompareResult(Result):
    """A comparison; its form depends on what varies: a PairResult, GridResult, SweepResult or CompletionsResult."""

    page_view: ClassVar[str | None] = "compare"
    view_type: ClassVar[str | None] = "regard.interpret.masked_lm.comparison:CompareView"
    _request: dict[str, object] = PrivateAttr(default_factory=dict)

    def view_data(self) -> dict[str, object]:
        return {"request": self._request, "warning": WARNING, **self._chart_data()}

    def _chart_data(self) -> dict[str, object]:
        raise NotImplementedError


@dataclass(frozen=True)
class TokenDifference:
    """One token in two sentences."""

    token: str
    logit_a: float
    logit_b: float
    probability_a: float
    probability_b: float
    mean: float
    difference: float


class PairResult(CompareResult):
    """Two sentences (or models, or cells of a grid), token by token, the highest mean logit first."""

    a: str
    b: str
    labels: tuple[str, str]
    caption: str
    tokens: list[TokenDifference]
    _pair: PairComparison = PrivateAttr()
    _number: int = PrivateAttr(TOKEN_COUNTS[0])

    def to_text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        a, b = map(escape_controls, self.labels)
        listed = self.tokens[: self._number] if self._number else self.tokens
        words = [escape_controls(one.token) for one in listed]
        width = max(map(cell_len, [*words, "token"]))
        yield self.caption
        yield ""
        first, second = max(len(a), 9), max(len(b), 9)
        yield f"  {'token':{width}}  {a:>{first}}  {b:>{second}}  difference of logits"
        for word, one in zip(words, listed, strict=True):
            space = " " * (width - cell_len(word))
            probabilities = f"{one.probability_a:{first}.3%}  {one.probability_b:{second}.3%}"
            yield f"  {word}{space}  {probabilities}  {one.difference:+10.2f}"
        if len(self.tokens) > len(listed):
            yield f"  and {len(self.tokens) - len(listed):,} more in the chart, which --json and --output have"

    def _chart_data(self) -> dict[str, object]:
        pair = self._pair
        return {"kind": "pair"} | _charts(pair.tokens, [pair.a, pair.b], {(0, 1): pair}, TOKEN_COUNTS)


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
    _grid: Grid = PrivateAttr()

    @classmethod
    def of(cls, grid: Grid, number: int, chart: Chart) -> GridResult:
        pairs = grid.pairs()
        differences = []
        for first, second in ((pairs[one], pairs[other]) for one, other in grid.squares()):
            order, values = second_differences(first, second, number)
            rows = zip(order.tolist(), values.tolist(), strict=True)
            tokens = [TokenSecondDifference(first.tokens[index], *row) for index, row in rows]
            differences.append(SecondDifference(first.labels, second.labels, tokens))
        result = cls(
            template=grid.text,
            rows=grid.rows,
            columns=grid.columns,
            pairs=[pair.result(number, chart) for pair in pairs.values()],
            differences=differences,
        )
        result._grid = grid
        return result

    def to_text(self) -> str:
        pairs = [f"{pair.to_text()}\n" for pair in self.pairs]
        return "\n".join([*pairs, "--json and --output have the differences of differences too"])

    def _chart_data(self) -> dict[str, object]:
        grid = self._grid
        counts = TOKEN_COUNTS if len(grid.predictions.rows) <= WHOLE else FEWER_TOKEN_COUNTS
        pairs = grid.pairs()
        numbers = {cells: number for number, cells in enumerate(pairs)}
        squares = []
        for across, up in grid.squares():
            left, right, down, top = (grid.label(cell) for cell in (*across, *up))
            axes = {"left": f"← {left}", "right": f"{right} →", "down": f"← {down}", "up": f"{top} →"}
            squares.append({"across": numbers[across], "up": numbers[up], "axes": axes})
        charts = _charts(grid.predictions.tokens, grid.predictions.rows, pairs, counts)
        return {"kind": "grid", "rows": list(grid.rows), "columns": list(grid.columns), **charts, "squares": squares}


def _charts(
    tokens: Sequence[str],
    predictions: Sequence[MaskedPrediction],
    pairs: dict[tuple[int, int], PairComparison],
    counts: Sequence[int],
) -> dict[str, object]:
    """The tokens that any chart may show, the logits of every sentence for them, and the labels of each pair."""
    kept = np.arange(len(tokens))
    if ALL not in counts:
        kept = reduce(np.union1d, [pair.visible(max(counts), chart) for pair in pairs.values() for chart in CHARTS])
    return {
        "numbers": list(counts),
        "palette": FULL_COLOR,
        "tokens": [tokens[index] for index in kept.tolist()],
        "sentences": [
            {"text": one.text, "model": one.model, "total": one.total, "logits": encode_float32(one.logits[kept])}
            for one in predictions
        ],
        "pairs": [
            {
                "a": a,
                "b": b,
                "labels": list(pair.labels),
                "axes": pair.axes(),
                "extents": {str(number): pair.extent(number) for number in counts},
                "captions": {chart: {str(n): pair.caption(n, chart) for n in counts} for chart in CHARTS},
            }
            for (a, b), pair in pairs.items()
        ],
    }


@dataclass(frozen=True)
class SweepToken:
    """One token along a range: `differences` of its logits with two labels, or its `logits` with one."""

    token: str
    mean: float
    differences: list[float] | None = None
    logits: list[float] | None = None

    @property
    def series(self) -> list[float]:
        return self.logits or self.differences or []


class SweepResult(CompareResult):
    """A template over a range of numbers, mostly years; tokens are chosen and ordered by their mean logit."""

    template: str
    values: tuple[int, ...]
    labels: tuple[str, ...]
    caption: str
    tokens: list[SweepToken]

    @classmethod
    def of(cls, text: str, slots: Sequence[Slot], predictions: MaskedPredictions, number: int) -> SweepResult:
        """`slots` are the range and at most one slot of two labels, in the order of the predictions."""
        axis = next(index for index, slot in enumerate(slots) if slot.is_range)
        values = tuple(int(value) for value in slots[axis].values)
        labels: tuple[str, ...] = next((slot.values for slot in slots if not slot.is_range), ("logit",))
        logits = np.stack([row.logits for row in predictions.rows])
        logits = np.moveaxis(logits.reshape([*(len(slot.values) for slot in slots), -1]), axis, 0)
        logits = logits.reshape(len(values), len(labels), -1)
        mean = logits.mean((0, 1), dtype=np.float64)
        top = _top(mean, number)
        chosen = logits[:, :, top].astype(np.float64)
        two = len(labels) == 2
        series = chosen[:, 0] - chosen[:, 1] if two else chosen[:, 0]
        names = (predictions.tokens[index] for index in top.tolist())
        return cls(
            template=text,
            values=values,
            labels=labels,
            caption=_sweep_caption(predictions.model_name, values, labels, series),
            tokens=[
                SweepToken(name, average, **{"differences" if two else "logits": row})
                for name, average, row in zip(names, mean[top].tolist(), series.T.tolist(), strict=True)
            ],
        )

    def to_text(self) -> str:
        """The tokens whose value changes most between the ends of the range."""
        most = sorted(self.tokens, key=lambda one: -abs(one.series[-1] - one.series[0]))[:LISTED]
        names = [escape_controls(one.token) for one in most]
        width = max(map(cell_len, names))
        lines = [self.caption, "", f"  {'':{width}}  {self.values[0]:>8}  {self.values[-1]:>8}"]
        for name, one in zip(names, most, strict=True):
            space = " " * (width - cell_len(name))
            lines.append(f"  {name}{space}  {one.series[0]:+8.2f}  {one.series[-1]:+8.2f}")
        return "\n".join(lines)

    def _chart_data(self) -> dict[str, object]:
        return {
            "kind": "sweep",
            "values": list(self.values),
            "labels": list(self.labels),
            "caption": self.caption,
            "tokens": [one.token for one in self.tokens],
            "series": encode_float32(np.array([one.series for one in self.tokens])),
        }


def _sweep_caption(model: str, values: tuple[int, ...], labels: tuple[str, ...], series: Values) -> str:
    """`series` is (values, tokens)."""
    count, between = series.shape[1], f"{values[0]} to {values[-1]}"
    if len(labels) < 2:
        return f"{model}: the logit of the {count} likeliest tokens, {between}."
    first, last = np.abs(series[[0, -1]]).mean(1)
    return (
        f"{model}: the logit with {labels[0]} minus the logit with {labels[1]} for the {count} likeliest tokens, "
        f"{between}. On average the two are {first:.2f} apart at {values[0]} and {last:.2f} at {values[-1]}."
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

    def _chart_data(self) -> dict[str, object]:
        words = self.to_dict()["words"]
        return {"kind": "sentence", "text": self.text, "model": self.model, "words": words}


def compare_models(
    texts: Sequence[str], models: Sequence[LoadedModel], *, number: int | None = None, chart: str = "likelihoods"
) -> CompareResult:
    """Compare sentences with one model, or two models with each other.

    What varies decides the form of the result: nothing, the words of one sentence; one thing, a pair or a row; two
    things, a grid. A thing that varies is a slot `[he|she]`, the two texts, or the two models; a slot `[1860..2018]`
    makes a sweep. `number` of tokens is 30 by default, 150 in a sweep; 0 is all.
    """
    if not 1 <= len(models) <= 2:
        raise InputError(f"expected one model or two to compare with each other, got {len(models)}")
    if not 1 <= len(texts) <= 2:
        raise InputError(f"expected one or two sentences, got {len(texts)}; a slot such as [he|she] makes more of one")
    kind = _check(number, chart)
    result = _compare(list(texts), models, number, kind)
    default = SWEEP_TOKENS if isinstance(result, SweepResult) else TOKEN_COUNTS[0]
    return _with_request(result, texts, [one.name for one in models], default if number is None else number, kind)


def compare_stored(
    paths: Sequence[str | os.PathLike[str]],
    vocabulary: str | os.PathLike[str],
    *,
    texts: Sequence[str] | None = None,
    number: int | None = None,
    chart: str = "likelihoods",
) -> PairResult:
    """Compare two files of logits. `texts` are their sentences; by default made from the file names."""
    if len(paths) != 2 or (texts and len(texts) != 2):
        raise InputError("expected two files of logits, and two sentences for them or none")
    kind = _check(number, chart)
    predictions = read_predictions(paths, vocabulary, texts=texts or None)
    a, b = predictions.rows
    pair = PairComparison(predictions.tokens, a, b, contrast_labels(a.text, b.text), predictions.model_name)
    count = TOKEN_COUNTS[0] if number is None else number
    result = pair.result(count, kind)
    _with_request(result, [a.text, b.text], [], count, kind)
    return result


def _check(number: int | None, chart: str) -> Chart:
    if number is not None and number < 0:
        counts = ", ".join(map(str, TOKEN_COUNTS[:-1]))
        raise InputError(f"the number of tokens is {number}; expected {counts} or 0 for all")
    check_choice("chart", chart, CHARTS)
    return "likelihoods" if chart == "likelihoods" else "differences"


def _with_request(
    result: CompareResult, texts: Sequence[str], models: Sequence[str], number: int, chart: Chart
) -> CompareResult:
    result._request = {"texts": list(texts), "models": list(models), "number": number, "chart": chart}
    return result


def _compare(texts: list[str], models: Sequence[LoadedModel], number: int | None, chart: Chart) -> CompareResult:
    templates = [parse_template(text) for text in texts]
    slots = list(templates[0].slots)
    if len(texts) == 2:
        if any(template.slots for template in templates):
            raise InputError("slots such as [he|she] belong in a single sentence; give one text, or two without slots")
        slots = [Slot(contrast_labels(*texts), is_range=False)]
    sentences = texts if len(texts) == 2 else templates[0].sentences()
    if len(models) == 2:
        slots.insert(0, Slot(tuple(short_name(one) for one in models), is_range=False))
    if not slots:
        return CompletionsResult(text=texts[0], model=short_name(models[0]), words=complete_words(models[0], texts[0]))
    _check_slots(slots)
    predictions = predict_blanks(models, sentences)
    if any(slot.is_range for slot in slots):
        return SweepResult.of(texts[0], slots, predictions, SWEEP_TOKENS if number is None else number)
    count = TOKEN_COUNTS[0] if number is None else number
    if len(slots) == 1 and len(slots[0].values) == 2:
        (a, b), (first, second) = slots[0].values, predictions.rows
        kind: PairKind = "models" if len(models) == 2 else "sentences"
        name = predictions.model_name
        return PairComparison(predictions.tokens, first, second, (a, b), name, kind=kind).result(count, chart)
    rows = slots[0].values if len(slots) == 2 else ("",)
    return GridResult.of(Grid(" / ".join(texts), rows, slots[-1].values, predictions), count, chart)


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
