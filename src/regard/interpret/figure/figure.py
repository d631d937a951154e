"""Figure 1 of "Attention Is All You Need" for one model and one sentence: boxes, tensors, code and ablation."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.interpret.attention.recording import TextTokenizer
from regard.interpret.figure.ablation import (
    COMPONENTS,
    MIN_TOKENS,
    AblationOutcome,
    ComponentAblation,
    FigureInput,
    FigureModel,
    LossCache,
    ablate_components,
    built_in_sentences,
    check_components,
    figure_model_of,
    missing_components,
    without_components,
)
from regard.interpret.figure.boxes import Box, NamedTensor, capture_calls, model_boxes
from regard.interpret.figure.layout import FigureLayout, lay_out
from regard.models import Bert, Gpt, Transformer
from regard.models.family import can
from regard.nn import TextEmbedding, sinusoids
from regard.nn.embedding import Arrangement, LearnedPositions, SinusoidalPositions
from regard.nn.training import evaluation_mode
from regard.render.result import Result

if TYPE_CHECKING:
    from regard.render.drawing import Drawing


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


@dataclass(frozen=True)
class Component:
    """A part of the model that can be removed; `disabled` is the reason why it cannot."""

    name: str
    title: str
    removed: bool
    disabled: str | None


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
    """The boxes in one layer, and the ablation of every component; `without` names those removed in the boxes.

    `model_boxes` hold the whole tensors of all layers.
    """

    page_view: ClassVar[str | None] = "figure"
    view_type: ClassVar[str | None] = "regard.interpret.figure.view:FigureView"

    model: str
    family: str
    text: str
    target: str | None
    without: list[str]
    layer: int = 0
    tokens: dict[str, list[str]]
    boxes: list[BoxSummary] = Field(default_factory=list)
    components: list[Component]
    ablation: ComponentAblation
    notes: list[str]
    depth: int = Field(exclude=True)
    heads: int = Field(exclude=True)
    width: int = Field(exclude=True)
    norm_first: bool = Field(exclude=True)
    inputs: FigureInput = Field(exclude=True)
    given_target: str | None = Field(exclude=True)
    model_boxes: tuple[Box, ...] = Field(exclude=True)
    positional_encoding: PositionalEncoding | None = Field(exclude=True)
    figure_model: FigureModel = Field(exclude=True)

    def at_layer(self, layer: int) -> Figure:
        """The figure with the boxes of a layer, counted from 0."""
        if not 0 <= layer < self.depth:
            raise InputError(f"layer is {layer}, and this model has {self.depth}: 0 to {self.depth - 1}")
        summaries = [_summary(box, layer) for box in self.model_boxes]
        return self.model_copy(update={"layer": layer, "boxes": summaries})

    def layout(self) -> FigureLayout:
        return lay_out(self.model_boxes, depth=self.depth, without=self.without)

    def box(self, name: str) -> Box:
        return next(box for box in self.model_boxes if box.name == name)

    @property
    def disabled(self) -> dict[str, str]:
        """The components that this model does not have, each with the reason."""
        return {one.name: one.disabled for one in self.components if one.disabled is not None}

    def view_data(self) -> dict[str, object]:
        from regard.interpret.figure.view import figure_view

        return figure_view(self).model_dump(mode="json")

    def to_drawing(self) -> Drawing:
        from regard.interpret.figure.drawing import figure_drawing

        return figure_drawing(self)

    def to_text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        norm = "pre" if self.norm_first else "post"
        size = f"{self.depth} layers of {self.heads} heads, width {self.width}"
        yield f"{self.model} ({self.family}): {size}, {norm}-norm"
        for part, tokens in self.tokens.items():
            yield f"{part}: {' '.join(' '.join(token.split()) for token in tokens)}"
        yield f"\nBoxes, from the bottom; inside the stack, layer {self.layer}:"
        for box in self.model_boxes:
            one = box.passes[min(self.layer, len(box.passes) - 1)]
            shapes = ", ".join(f"{tensor.name} {tuple(tensor.tensor.shape)}" for tensor in one.tensors)
            yield f"  {box.part:8} {box.title:31} {shapes}"
        yield f"\nEffect of removing each component: {self.ablation.measure}"
        intact = self.ablation.outcomes[0]
        count = len(self.ablation.sentences)
        for outcome in self.ablation.outcomes:
            loss = format_loss(outcome.loss, intact.loss)
            if count:
                loss += (
                    f", {format_loss(outcome.sentences_loss, intact.sentences_loss)} over {count} built-in sentences"
                )
            yield f"  {outcome_name(outcome)}: loss {loss}"
            yield f"      output: {outcome.output}"
        yield from self.ablation.remarks
        yield from (f"no {name}: {reason}" for name, reason in self.disabled.items())


def outcome_name(outcome: AblationOutcome) -> str:
    return ", ".join(f"no {name}" for name in outcome.without) or "intact model"


def format_loss(loss: float | None, intact: float | None) -> str:
    """A loss with its difference to that of the intact model."""
    if loss is None or intact is None:
        return "not known"
    return f"{loss:.3f}" if loss == intact else f"{loss:.3f} ({loss - intact:+z.3f})"


def draw_figure(
    model: nn.Module,
    tokenizer: TextTokenizer,
    text: str,
    target: str | None = None,
    *,
    without: Collection[str] = (),
    name: str = "",
    layer: int = 0,
    loss_cache: LossCache | None = None,
) -> Figure:
    """Pass one sentence through every box of the figure, with some components of the model removed.

    A translator decodes `target`, or its own translation by default. The ablation is measured over the text, and over
    built-in sentences that depend on the model's `name`; `loss_cache` keeps the losses of those for a model that does
    not change.
    """
    if not text.strip():
        raise InputError("the text is empty; expected at least a word")
    figure_model, removed = figure_model_of(model, tokenizer), check_components(without)
    network = figure_model.model
    max_tokens = max_tokens_of(network)
    with evaluation_mode(network):
        inputs = figure_model.read(text, target, max_tokens=max_tokens)
        with without_components(network, removed), capture_calls(network) as calls:
            logits = figure_model.run(inputs)
        boxes = model_boxes(network, calls, logits, removed)
        sentences = built_in_sentences(name, translates=len(figure_model.parts) == 2)
        ablation = ablate_components(
            figure_model, inputs, removed, sentences=sentences, max_tokens=max_tokens, loss_cache=loss_cache
        )
    config, missing = network.config, missing_components(network)
    truncated = f"{inputs.truncated} token{'s' if inputs.truncated > 1 else ''} at the end did not fit"
    figure = Figure(
        model=name,
        family=config.family,
        text=text,
        target=inputs.target,
        without=list(removed),
        tokens={part: figure_model.tokens(inputs, part) for part in figure_model.parts},
        components=[Component(one, f"no {one}", one in removed, missing.get(one)) for one in COMPONENTS],
        ablation=ablation,
        notes=[truncated] if inputs.truncated else [],
        depth=config.num_hidden_layers,
        heads=config.num_attention_heads,
        width=config.hidden_size,
        norm_first=can(network, "causal-lm") or (isinstance(network, Transformer) and network.config.norm_first),
        inputs=inputs,
        given_target=target,
        model_boxes=boxes,
        positional_encoding=model_positional_encoding(network, NUM_POSITIONS),
        figure_model=figure_model,
    )
    return figure.at_layer(layer)


def figure_of(loaded: LoadedModel, text: str, target: str | None, *, without: Collection[str], layer: int) -> Figure:
    """`draw_figure` of a loaded model; a server keeps its losses over the built-in sentences."""
    losses: LossCache = loaded.cached("component losses", dict)
    options: dict[str, Any] = {"without": without, "name": loaded.name, "layer": layer, "loss_cache": losses}
    return draw_figure(loaded.model, loaded.tokenizer, text, target, **options)


def max_tokens_of(model: Bert | Gpt | Transformer) -> int:
    """The most tokens a half may have: what a page has room for, and the model's number of positions."""
    config = model.config
    maps = 2 * config.num_attention_heads * MAX_TOKENS
    each = 12 * config.hidden_size + config.intermediate_size + maps
    if isinstance(model, Transformer):
        each = 2 * each + 6 * config.hidden_size + maps
    depth = config.num_hidden_layers
    limit = min(MAX_TOKENS, MAX_NUMBERS // (each * depth), getattr(config, "max_position_embeddings", MAX_TOKENS))
    if limit < MIN_TOKENS + 1:
        raise InputError(f"{depth} layers of width {config.hidden_size} are too many for a page; use a smaller model")
    return limit


def _summary(box: Box, layer: int) -> BoxSummary:
    one = box.passes[min(layer, len(box.passes) - 1)]
    parameters = {name: list(shape) for name, shape in one.parameters.items()}
    return BoxSummary(box.name, box.title, box.code, one.difference, parameters, [_first(t) for t in one.tensors])


def _first(named: NamedTensor) -> TensorSummary:
    rows: Tensor = named.tensor.reshape(-1, named.tensor.shape[-1])[:NUM_FIRST, :NUM_FIRST]
    numbers: Any = [[value if abs(value) < float("inf") else None for value in row] for row in rows.tolist()]
    return TensorSummary(named.name, list(named.tensor.shape), numbers)
