"""What the page draws of a comparison: charts of two sentences or a grid, a range of numbers, or completions.

Also the comparison in words: labels for what differs between two sentences, and captions of charts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, PrivateAttr, RootModel

from regard.interpret.masked_lm.predictions import WARNING, MaskedWord, ValueKind
from regard.render.result import Result
from regard.text.tokenizer import readable_token

Chart: TypeAlias = Literal["likelihoods", "differences"]
CHARTS: tuple[Chart, ...] = get_args(Chart)
FULL_COLOR = 0.8  # of the greatest difference: from there on the color is full
ONE_AND_TWO = ("sentence one", "sentence two")  # if two sentences have no short labels
MAX_LABEL = 15  # characters; a longer one does not fit an axis
CAPTION_WORDS = 5  # that a caption names on either side
MIN_FACTOR = 2  # how many times likelier a word must be to be named
MIN_PROBABILITY = 1e-3  # of a named word, in the sentence that makes it likelier
_WORD = re.compile(r"\[MASK\]|\w+|[^\w\s]")
_KINDS = (  # the words before the blank, and what fills it
    (re.compile(r"\b(?:buy|buys|bought|purchase|purchased)\W*$", re.IGNORECASE), "potential purchases"),
    (re.compile(r"\b(?:works?|worked|working|employed|jobs?|careers?) as an?\W*$", re.IGNORECASE), "jobs"),
    (re.compile(r"\b(?:named|called|name (?:is|was))\W*$", re.IGNORECASE), "names"),
)


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


def contrast_labels(a: str, b: str) -> tuple[str, str]:
    """Where two sentences differ: each without the words that both begin and end with.

    `ONE_AND_TWO` if that leaves nothing of one of them, or more than fits an axis.
    """
    words = [[(match[0].lower(), match.span()) for match in _WORD.finditer(text)] for text in (a, b)]
    shorter = min(map(len, words))
    same = [x[0] == y[0] for x, y in zip(*words, strict=False)]
    begin = same.index(False) if False in same else shorter
    same = [x[0] == y[0] for x, y in zip(reversed(words[0]), reversed(words[1]), strict=False)]
    tail = min(same.index(False) if False in same else shorter, shorter - begin)
    labels = []
    for text, parts in zip((a, b), words, strict=True):
        rest = parts[begin : len(parts) - tail]
        labels.append(text[rest[0][1][0] : rest[-1][1][1]] if rest else "")
    if any(not 0 < len(label) <= MAX_LABEL for label in labels):
        return ONE_AND_TWO
    return labels[0], labels[1]


def sentence_of(label: str) -> str:
    """A label in a caption or on an axis: "Texas sentence", but "sentence one"."""
    return label if label in ONE_AND_TWO else f"{label} sentence"


def notable_words(
    tokens: Sequence[str],
    probabilities: NDArray[np.float64],
    differences: NDArray[np.float64],
    texts: Iterable[str],
) -> list[str]:
    """The words a caption names: at least MIN_FACTOR times likelier, the greatest difference first.

    Word pieces, rare words and the words of the sentences themselves are left out. `differences` are logarithms.
    """
    own = {match[0].lower() for text in texts for match in _WORD.finditer(text)}
    marks_words = any(token.startswith("Ġ") for token in tokens)  # else a mark shows that a piece continues a word
    words: list[str] = []
    likely = np.flatnonzero((probabilities >= MIN_PROBABILITY) & (differences >= np.log(MIN_FACTOR)))
    for index in likely[np.argsort(-differences[likely], kind="stable")].tolist():
        token = tokens[index]
        word = readable_token(token).strip()
        if word.isalpha() and word.lower() not in own and (token.startswith("Ġ") or not marks_words):
            words.append(word)
    return words[:CAPTION_WORDS]


def caption(model: str | None, text: str, pair: Sequence[str], more_a: Sequence[str], more_b: Sequence[str]) -> str:
    """A chart in words: `more_a` and `more_b` are the words that are likelier on either side.

    `model` is the name of the model; None if two models are compared.
    """
    kind = next((kind for before, kind in _KINDS if before.search(re.split(r"_|\[MASK\]", text)[0])), "words")
    a, b = ("the first sentence", "the second") if tuple(pair) == ONE_AND_TWO else pair
    sentences: list[str] = []
    for one, other, tokens in ((a, b, more_a), (b, a, more_b)):
        if tokens and model:
            opening = "It associates these" if sentences else f"{model} associates these {kind}"
            sentences.append(f"{opening} more with {one} than {other}: {', '.join(tokens)}.")
        elif tokens:
            sentences.append(f"{one} makes these {kind} likelier than {other} does: {', '.join(tokens)}.")
    return " ".join(sentences) or f"No likely word differs by a factor of {MIN_FACTOR} between {a} and {b}."
