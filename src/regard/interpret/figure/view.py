"""The data of the page's Figure 1: every tensor of every layer, as float16 in base64.

A tensor that several boxes share is included once. Tensors as wide as the vocabulary are reduced to the likeliest
tokens.
"""

from __future__ import annotations

from pydantic import BaseModel
from torch import Tensor

from regard.interpret.figure.ablation import ComponentAblation
from regard.interpret.figure.boxes import Box, BoxPass, NamedTensor
from regard.interpret.figure.figure import Component, Figure
from regard.interpret.figure.layout import FigureLayout
from regard.render.page_arrays import encode_float16

NUM_WORDS = 10  # likeliest tokens of each row of the logits


class FigureModelView(BaseModel):
    name: str
    family: str
    depth: int
    heads: int
    width: int
    norm_first: bool


class TensorView(BaseModel):
    """`data` is float16 in base64; ids have `values` instead, and logits and probabilities `words`."""

    shape: list[int]
    rows: str | None  # the half whose tokens the rows stand for
    columns: str | None
    data: str | None = None
    values: list[int] | None = None
    words: list[list[tuple[str, float]]] | None = None


class BoxPassView(BaseModel):
    tensors: list[tuple[str, int]]  # the name in the code, and the index in `FigureView.tensors`
    parameters: dict[str, list[int]]
    difference: float


class BoxView(BaseModel):
    part: str
    group: str
    kind: str
    title: str
    about: str
    code: str
    steps: list[BoxPassView]  # one for each layer, or a single one


class PositionsView(BaseModel):
    arrangement: str | None
    shape: tuple[int, int]
    data: str | None  # null for sinusoids, which the page computes


class FigureView(BaseModel):
    model: FigureModelView
    text: str
    target: str | None
    given: str  # the target of the request
    without: list[str]
    components: list[Component]
    tokens: dict[str, list[str]]
    layout: FigureLayout
    boxes: dict[str, BoxView]
    tensors: list[TensorView]
    ablation: ComponentAblation
    positions: PositionsView | None
    notes: list[str]
    place: str  # the part of the page's address after which it opens at the layer


def figure_view(figure: Figure) -> FigureView:
    tensors = _Tensors(figure)
    encoding = figure.positional_encoding
    positions = None
    if encoding is not None:
        rows, width = encoding.matrix.shape
        data = None if encoding.arrangement else encode_float16(encoding.matrix)
        positions = PositionsView(arrangement=encoding.arrangement, shape=(rows, width), data=data)
    return FigureView(
        model=FigureModelView(
            name=figure.model,
            family=figure.family,
            depth=figure.depth,
            heads=figure.heads,
            width=figure.width,
            norm_first=figure.norm_first,
        ),
        text=figure.text,
        target=figure.target,
        given=figure.given_target or "",
        without=figure.without,
        components=figure.components,
        tokens=figure.tokens,
        layout=figure.layout(),
        boxes={box.name: _box_view(box, tensors) for box in figure.model_boxes},
        tensors=tensors.views,
        ablation=figure.ablation,
        positions=positions,
        notes=figure.notes,
        place=f"#figure?layer={figure.layer}",
    )


class _Tensors:
    """The views of all tensors, each once."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self.views: list[TensorView] = []
        self.indices: dict[tuple[int, tuple[int, ...]], int] = {}

    def index(self, named: NamedTensor, *, words: bool) -> int:
        key = named.tensor.data_ptr(), tuple(named.tensor.shape)
        if key not in self.indices:
            self.indices[key] = len(self.views)
            self.views.append(self._view(named, words=words))
        return self.indices[key]

    def _view(self, named: NamedTensor, *, words: bool) -> TensorView:
        view = TensorView(shape=list(named.tensor.shape), rows=named.rows, columns=named.columns)
        if words:
            return view.model_copy(update={"words": self._words(named.tensor)})
        if not named.tensor.is_floating_point():
            return view.model_copy(update={"values": named.tensor.tolist()})
        return view.model_copy(update={"data": encode_float16(named.tensor.float().cpu().numpy())})

    def _words(self, logits: Tensor) -> list[list[tuple[str, float]]]:
        best = logits.float().topk(min(NUM_WORDS, logits.shape[-1]))
        return [
            [(self.figure.figure_model.token_text(token), round(value, 6)) for token, value in zip(*row, strict=True)]
            for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


def _box_view(box: Box, tensors: _Tensors) -> BoxView:
    return BoxView(
        part=box.part,
        group=box.group,
        kind=box.kind,
        title=box.title,
        about=box.about,
        code=box.code,
        steps=[_pass_view(box, one, tensors) for one in box.passes],
    )


def _pass_view(box: Box, one: BoxPass, tensors: _Tensors) -> BoxPassView:
    return BoxPassView(
        tensors=[(named.name, tensors.index(named, words=_is_vocabulary(box, named))) for named in one.tensors],
        parameters={name: list(shape) for name, shape in one.parameters.items()},
        difference=one.difference,
    )


def _is_vocabulary(box: Box, named: NamedTensor) -> bool:
    return box.kind in ("linear", "softmax") and named.name in ("out", "logits")
