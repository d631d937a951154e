"""Figure 1 of "Attention Is All You Need" for one model and one sentence: boxes, tensors, code and ablation."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from torch import Tensor, nn

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.interpret.attention.maps import check_text
from regard.interpret.figure.ablation import (
    COMPONENTS,
    AblationOutcome,
    ComponentAblation,
    LossCache,
    ablate_components,
    built_in_sentences,
    check_components,
    missing_components,
    without_components,
)
from regard.interpret.figure.boxes import Box, NamedTensor, capture_calls, model_boxes
from regard.interpret.figure.figure_model import MIN_TOKENS, FigureInput, FigureModel, figure_model_of
from regard.interpret.translation import one_sentence
from regard.models.family import can
from regard.nn.block import Residual
from regard.nn.embedding import Arrangement, LearnedPositions, SinusoidalPositions, TextEmbedding, sinusoids
from regard.nn.recording import check_layer
from regard.nn.training import evaluation_mode
from regard.render.page_arrays import encode_float16
from regard.render.result import Result
from regard.wording import count_of

MAX_POSITIONS, MAX_WIDTH = 512, 1024


@dataclass(frozen=True, eq=False)
class PositionalEncoding:
    """A matrix (positions, width). `arrangement` is None if it was learned."""

    matrix: NDArray[np.float32]
    arrangement: Arrangement | None


def positional_encoding(
    width: int = 128, count: int = 50, arrangement: Arrangement = "interleaved"
) -> PositionalEncoding:
    """p(t)[2k] = sin(w_k t), p(t)[2k+1] = cos(w_k t) with w_k = 10000^(-2k/width).

    "halves" has all sines before all cosines.
    """
    if width % 2 or not 2 <= width <= MAX_WIDTH:
        raise InputError(f"width is {width}; expected an even number from 2 to {MAX_WIDTH}")
    if not 1 <= count <= MAX_POSITIONS:
        raise InputError(f"the number of positions is {count}; expected 1 to {MAX_POSITIONS}")
    return PositionalEncoding(sinusoids(torch.arange(count), width, arrangement=arrangement).numpy(), arrangement)


def model_positional_encoding(model: nn.Module, count: int = 50) -> PositionalEncoding | None:
    """The first vectors that the model adds for positions; None if it adds none."""
    embeddings = (module for module in model.modules() if isinstance(module, TextEmbedding))
    positions = next((one.positions for one in embeddings if one.positions), None)
    if isinstance(positions, LearnedPositions):
        rows = positions.weight[positions.offset : positions.offset + min(count, positions.count)]
        return PositionalEncoding(rows.detach().float().cpu().numpy(), None)
    if isinstance(positions, SinusoidalPositions):
        return positional_encoding(positions.width, count, positions.arrangement)
    return None


MAX_TOKENS = 32  # of a text
MAX_NUMBERS = 3_300_000  # of all boxes and layers together: as float16 in a page, about 9 MB
NUM_FIRST = 4  # numbers and rows of each tensor in the JSON document
NUM_POSITIONS = 50  # rows of the positional encoding
NUM_WORDS = 10  # likeliest tokens of each row of the logits, in the page


@dataclass(frozen=True)
class Component:
    """A part of the model that can be removed; `disabled` is the reason why it cannot."""

    name: str
    title: str
    removed: bool
    disabled: str | None


class FigureModelView(BaseModel):
    name: str
    family: str
    depth: int
    heads: int
    width: int
    norm_first: bool
    norms: str  # where they stand, compared with the paper's figure


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
    boxes: dict[str, BoxView]
    tensors: list[TensorView]
    ablation: ComponentAblation | None
    positions: PositionsView | None
    notes: list[str]
    place: str  # the part of the page's address after which it opens at the layer


@dataclass(frozen=True)
class TensorSummary:
    """The first numbers of a tensor; null stands for infinity, as of a masked score."""

    name: str
    shape: list[int]
    first: list[list[float | None]]


@dataclass(frozen=True)
class BoxSummary:
    """A box in one layer: its code, by how much its result differs from the model's own, and its tensors."""

    name: str
    title: str
    code: str
    difference: float
    parameters: dict[str, list[int]]
    tensors: list[TensorSummary]


class Figure(Result):
    """The boxes in one layer, and the ablation of the components; `without` names those removed in the boxes.

    The ablation is None if it was not requested and nothing is removed.
    `model_boxes` hold the whole tensors of all layers.
    """

    page_view: ClassVar[str | None] = "figure"
    view_type: ClassVar[str | None] = "regard.interpret.figure.figure:FigureView"

    model: str
    family: str
    text: str
    target: str | None
    without: list[str]
    layer: int
    tokens: dict[str, list[str]]
    boxes: list[BoxSummary]
    components: list[Component]
    ablation: ComponentAblation | None
    notes: list[str]
    architecture: FigureModelView = Field(exclude=True)
    inputs: FigureInput = Field(exclude=True)
    given_target: str | None = Field(exclude=True)
    model_boxes: tuple[Box, ...] = Field(exclude=True)
    positional_encoding: PositionalEncoding | None = Field(exclude=True)
    figure_model: FigureModel = Field(exclude=True)

    def box(self, name: str) -> Box:
        return next(box for box in self.model_boxes if box.name == name)

    @property
    def disabled(self) -> dict[str, str]:
        """The components that this model does not have, each with the reason."""
        return {one.name: one.disabled for one in self.components if one.disabled is not None}

    def view_data(self) -> dict[str, object]:
        tensors = _Tensors(self.figure_model)
        encoding = self.positional_encoding
        positions = None
        if encoding is not None:
            data = None if encoding.arrangement else encode_float16(encoding.matrix)
            positions = PositionsView(arrangement=encoding.arrangement, shape=encoding.matrix.shape, data=data)
        return FigureView(
            model=self.architecture,
            text=self.text,
            target=self.target,
            given=self.given_target or "",
            without=self.without,
            components=self.components,
            tokens=self.tokens,
            boxes={box.name: _box_view(box, tensors) for box in self.model_boxes},
            tensors=tensors.views,
            ablation=self.ablation,
            positions=positions,
            notes=self.notes,
            place=f"#figure?layer={self.layer}",
        ).model_dump(mode="json")

    def to_text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        shape = self.architecture
        size = f"{shape.depth} layers of {shape.heads} heads, width {shape.width}"
        yield f"{self.model} ({self.family}): {size}"
        yield shape.norms
        for part, tokens in self.tokens.items():
            yield f"{part}: {' '.join(' '.join(token.split()) for token in tokens)}"
        yield f"\nBoxes, from the bottom; inside the stack, layer {self.layer}:"
        for box in self.model_boxes:
            one = box.in_layer(self.layer)
            shapes = ", ".join(f"{tensor.name} {tuple(tensor.tensor.shape)}" for tensor in one.tensors)
            yield f"  {box.part:8} {box.title:31} {shapes}"
        if self.ablation is not None:
            yield from self._ablation_lines(self.ablation)
        yield from (f"no {name}: {reason}" for name, reason in self.disabled.items())

    @staticmethod
    def _ablation_lines(ablation: ComponentAblation) -> Iterator[str]:
        yield f"\nEffect of removing components: {ablation.measure}"
        intact = ablation.outcomes[0]
        count = len(ablation.sentences)
        for outcome in ablation.outcomes:
            loss = format_loss(outcome.loss, intact.loss)
            if count:
                loss += (
                    f", {format_loss(outcome.sentences_loss, intact.sentences_loss)} over {count} built-in sentences"
                )
            yield f"  {outcome_name(outcome)}: loss {loss}"
            yield f"      output: {outcome.output}"
        yield from ablation.remarks


def describe_norms(*, norm_first: bool) -> str:
    """Where the norms of a model stand, compared with the paper's figure."""
    if norm_first:
        return (
            "Pre-norm: each sublayer reads a normalized input and its output is added to the input that was not "
            "normalized. The paper draws it the other way, with Add & Norm after each sublayer."
        )
    return "Post-norm, as the paper draws it: Add & Norm after each sublayer."


def outcome_name(outcome: AblationOutcome) -> str:
    return ", ".join(f"no {name}" for name in outcome.without) or "intact model"


def format_loss(loss: float | None, intact: float | None) -> str:
    """A loss with its difference to that of the intact model."""
    if loss is None or intact is None:
        return "not known"
    return f"{loss:.3f}" if loss == intact else f"{loss:.3f} ({loss - intact:+z.3f})"


def figure_of(
    loaded: LoadedModel,
    text: str,
    target: str | None = None,
    *,
    without: Collection[str] = (),
    layer: int = 1,
    ablation: bool = True,
) -> Figure:
    """Pass one sentence through every box of the figure, with some components of the model removed.

    A translator decodes `target`, or by default its own translation, then of the first sentence only. The ablation is
    measured over the text, and over built-in sentences that depend on the model's name; a server keeps the losses of
    those. Without `ablation`, only the effect of `without` is measured, if there is any.
    """
    check_text(text)
    figure_model, removed = figure_model_of(*loaded), check_components(without)
    text, notes = one_sentence(loaded, text) if target is None else (text, [])
    network = figure_model.model
    max_tokens = max_tokens_of(network)
    with evaluation_mode(network):
        inputs = figure_model.read(text, target, max_tokens=max_tokens)
        with without_components(network, removed), capture_calls(network) as calls:
            logits = figure_model.run(inputs)
        boxes = model_boxes(network, calls, logits, removed)
        sentences = built_in_sentences(loaded.name, translates=len(figure_model.tokenizers) == 2)
        effect = None
        losses: LossCache = loaded.cached("component losses", dict)
        if ablation or removed:
            effect = ablate_components(
                figure_model,
                inputs,
                removed,
                sentences=sentences,
                max_tokens=max_tokens,
                each=ablation,
                losses=losses,
            )
    config, missing = network.config, missing_components(network)
    norm_first = next(one.first for one in network.modules() if isinstance(one, Residual))
    depth = config.num_hidden_layers
    layer = check_layer(layer, depth)
    if inputs.truncated:
        notes.append(f"{count_of(inputs.truncated, 'token')} at the end did not fit")
    return Figure(
        model=loaded.name,
        family=config.family,
        text=text,
        target=inputs.target,
        without=list(removed),
        layer=layer,
        tokens={part: figure_model.tokens(inputs, part) for part in figure_model.tokenizers},
        boxes=[_summary(box, layer) for box in boxes],
        components=[Component(one, f"no {one}", one in removed, missing.get(one)) for one in COMPONENTS],
        ablation=effect,
        notes=notes,
        architecture=FigureModelView(
            name=loaded.name,
            family=config.family,
            depth=depth,
            heads=config.num_attention_heads,
            width=config.hidden_size,
            norm_first=norm_first,
            norms=describe_norms(norm_first=norm_first),
        ),
        inputs=inputs,
        given_target=target,
        model_boxes=boxes,
        positional_encoding=model_positional_encoding(network, NUM_POSITIONS),
        figure_model=figure_model,
    )


def max_tokens_of(model: Any) -> int:
    """The most tokens a half may have: what a page has room for, and the model's number of positions."""
    config = model.config
    maps = 2 * config.num_attention_heads * MAX_TOKENS
    each = 14 * config.hidden_size + config.intermediate_size + maps
    if can(model, "encoder-decoder"):
        each = 2 * each + 8 * config.hidden_size + maps
    depth = config.num_hidden_layers
    limit: int = min(MAX_TOKENS, MAX_NUMBERS // (each * depth), getattr(config, "max_position_embeddings", MAX_TOKENS))
    if limit < MIN_TOKENS + 1:
        raise InputError(f"{depth} layers of width {config.hidden_size} are too many for a page; use a smaller model")
    return limit


def _summary(box: Box, layer: int) -> BoxSummary:
    one = box.in_layer(layer)
    parameters = {name: list(shape) for name, shape in one.parameters.items()}
    return BoxSummary(box.name, box.title, box.code, one.difference, parameters, [_first(t) for t in one.tensors])


def _first(named: NamedTensor) -> TensorSummary:
    rows: Tensor = named.tensor.reshape(-1, named.tensor.shape[-1])[:NUM_FIRST, :NUM_FIRST]
    numbers: Any = [[value if abs(value) < float("inf") else None for value in row] for row in rows.tolist()]
    return TensorSummary(named.name, list(named.tensor.shape), numbers)


class _Tensors:
    """The views of all tensors, each once."""

    def __init__(self, figure_model: FigureModel) -> None:
        self.figure_model = figure_model
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
            view.words = self._words(named.tensor)
        elif named.tensor.is_floating_point():
            view.data = encode_float16(named.tensor.float().cpu().numpy())
        else:
            view.values = named.tensor.tolist()
        return view

    def _words(self, logits: Tensor) -> list[list[tuple[str, float]]]:
        best = logits.float().topk(min(NUM_WORDS, logits.shape[-1]))
        return [
            [(self.figure_model.token_text(token), round(value, 6)) for token, value in zip(*row, strict=True)]
            for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


def _box_view(box: Box, tensors: _Tensors) -> BoxView:
    vocabulary = ("out", "logits") if box.kind in ("linear", "softmax") else ()
    steps = [
        BoxPassView(
            tensors=[(named.name, tensors.index(named, words=named.name in vocabulary)) for named in one.tensors],
            parameters={name: list(shape) for name, shape in one.parameters.items()},
            difference=one.difference,
        )
        for one in box.passes
    ]
    return BoxView(
        part=box.part,
        group=box.group,
        kind=box.kind,
        title=box.title,
        about=box.about,
        code=box.code,
        steps=steps,
    )
