"""What the page draws of a comparison: charts of two sentences or a grid, a range of numbers, or completions."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias, get_args

from pydantic import BaseModel, PrivateAttr, RootModel

from regard.interpret.masked_lm.predictions import WARNING, MaskedWord, ValueKind
from regard.render.result import Result

Chart: TypeAlias = Literal["likelihoods", "differences"]
CHARTS: tuple[Chart, ...] = get_args(Chart)
FULL_COLOR = 0.8  # of the greatest difference: from there on the color is full


class ChartAxes(BaseModel):
    """The labels at the ends of the axes; an empty one is not shown."""

    right: str
    up: str
    left: str = ""
    down: str = ""


class SentenceView(BaseModel):
    text: str
    model: str
    total: float  # log-sum-exp of the values over the whole vocabulary
    values: str  # float32 in base64


class PairView(BaseModel):
    """Two sentences by their indices. Keys of `extents` and `captions` are numbers of tokens."""

    a: int
    b: int
    labels: tuple[str, str]
    axes: dict[Chart, ChartAxes]
    extents: dict[str, tuple[float, float]]
    captions: dict[Chart, dict[str, str]]


class SquareView(BaseModel):
    """The differences of two pairs, by their indices, against each other."""

    across: int
    up: int
    axes: ChartAxes


class ChartsView(BaseModel):
    """A pair or a grid: the tokens that any chart may show, the values of every sentence for them, and all pairs.

    `numbers` of tokens can be selected (0: all), at first `number`. Differences above `palette` times the largest one
    have the full color.
    """

    kind: Literal["pair", "grid"]
    warning: str = WARNING
    values: ValueKind
    number: int
    chart: Chart
    numbers: list[int]
    palette: float = FULL_COLOR
    tokens: list[str]
    sentences: list[SentenceView]
    pairs: list[PairView]
    rows: list[str] = []
    columns: list[str] = []
    squares: list[SquareView] = []


class SweepView(BaseModel):
    kind: Literal["sweep"] = "sweep"
    warning: str = WARNING
    values: ValueKind
    numbers: list[int]
    labels: list[str]
    caption: str
    tokens: list[str]
    series: str  # (tokens, values), float32 in base64


class CompletionsView(BaseModel):
    kind: Literal["sentence"] = "sentence"
    warning: str = WARNING
    text: str
    model: str
    words: list[MaskedWord]


class CompareView(RootModel[ChartsView | SweepView | CompletionsView]):
    """The page's view."""


class CompareResult(Result):
    """A comparison; its form depends on what varies: a PairResult, GridResult, SweepResult or CompletionsResult."""

    page_view: ClassVar[str | None] = "compare"
    view_type: ClassVar[str | None] = "regard.interpret.masked_lm.charts:CompareView"
    _view: Callable[[], ChartsView | SweepView | CompletionsView] = PrivateAttr()

    def view_data(self) -> dict[str, object]:
        return self._view().model_dump(mode="json")
