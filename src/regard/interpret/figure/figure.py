"""Figure 1 of "Attention Is All You Need", drawn of one model and one sentence: boxes, tensors, code and damage.

Knows how the parts of this folder come together. Knows nothing of files and pages; `payload` makes a page's document.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from regard.checkpoints.ready import evaluating
from regard.errors import InputError
from regard.interpret.attention.recording import TextTokenizer
from regard.interpret.figure.ablation import ComponentAblation, LossCache, ablate_components
from regard.interpret.figure.boxes import Box, NamedTensor, capture_calls
from regard.interpret.figure.figure_model import MIN_TOKENS, FigureInput, FigureModel, figure_model_of
from regard.interpret.figure.layout import FigureLayout, lay_out
from regard.interpret.figure.model_boxes import model_boxes
from regard.interpret.figure.positional_encoding import PositionalEncoding, model_positional_encoding
from regard.interpret.figure.sentences import sentences_for
from regard.interpret.figure.switches import COMPONENTS, missing_components, parse_components, without_components
from regard.models import Bert, Gpt, Transformer

__all__ = ["MAX_TOKENS", "ROOM", "Figure", "draw_figure", "max_tokens_of"]

MAX_TOKENS = 32  # tokens of a text
ROOM = 3_300_000  # numbers of all boxes and layers together: as float16 in a page, about 9 MB
FIRST = 4  # numbers and rows that a document has of each tensor
PLACES = 50  # positions that are shown


@dataclass(frozen=True, eq=False)
class Figure:
    """All that the figure shows. `off` is switched off in `boxes`; `damage` is measured for every switch."""

    name: str
    family: str
    depth: int
    heads: int
    width: int
    norm_first: bool
    text: str
    sentence: FigureInput
    given: str | None
    without: tuple[str, ...]
    disabled: dict[str, str]
    tokens: dict[str, tuple[str, ...]]
    boxes: tuple[Box, ...]
    ablation: ComponentAblation
    positions: PositionalEncoding | None
    figure_model: FigureModel

    def layout(self) -> FigureLayout:
        return lay_out(self.boxes, depth=self.depth, off=self.without)

    def box(self, name: str) -> Box:
        return next(box for box in self.boxes if box.name == name)

    def notes(self) -> list[str]:
        cut = self.sentence.cut
        return [f"{cut} token{'s' if cut > 1 else ''} at the end did not fit and are left out"] if cut else []

    def document(self, *, layer: int = 0) -> dict[str, object]:
        """Every box with its code, the shapes of its tensors and their first numbers, in one layer; and the damage."""
        if not 0 <= layer < self.depth:
            raise InputError(f"the layer is {layer}, and this model has {self.depth}: 0 to {self.depth - 1}")
        return {
            "family": self.family,
            "text": self.text,
            "target": self.sentence.target,
            "without": list(self.without),
            "layer": layer,
            "tokens": {part: list(tokens) for part, tokens in self.tokens.items()},
            "boxes": [self._box(box, layer) for box in self.boxes],
            "switches": self.switches(),
            "damage": self.ablation.document(),
            "notes": self.notes(),
        }

    def switches(self) -> list[dict[str, object]]:
        return [
            {"name": name, "title": title, "off": name in self.without, "disabled": self.disabled.get(name)}
            for name, title in COMPONENTS.items()
        ]

    def _box(self, box: Box, layer: int) -> dict[str, object]:
        step = box.steps[min(layer, len(box.steps) - 1)]
        return {
            "name": box.name,
            "title": box.title,
            "code": box.code,
            "difference": step.difference,
            "parameters": {name: list(shape) for name, shape in step.parameters.items()},
            "tensors": [_first(one) for one in step.values],
        }


def draw_figure(
    model: nn.Module,
    reader: TextTokenizer,
    text: str,
    target: str | None = None,
    *,
    without: str = "",
    name: str = "",
    loss_cache: LossCache | None = None,
) -> Figure:
    """One sentence through every box of the figure, with some parts of the model switched off.

    A translator decodes `target`, or its own translation where there is none. `switches` names what is off, such as
    "mask,positions". The damage is measured over the text, and over sentences of our own that go with the model's
    `name` (see `sentences`); `known` keeps what was measured of those, for a model that does not change.
    """
    if not text.strip():
        raise InputError("the text is empty; expected at least a word")
    subject, off = figure_model_of(model, reader), parse_components(without)
    network = subject.model
    limit = max_tokens_of(network)
    with evaluating(network):
        sentence = subject.read(text, target, limit=limit)
        with without_components(network, off), capture_calls(network) as calls:
            logits = subject.run(sentence)
        boxes = model_boxes(network, calls, logits, off)
        sentences = sentences_for(name, translates=len(subject.parts) == 2)
        damage = ablate_components(subject, sentence, off, sentences=sentences, limit=limit, known=loss_cache)
    config = network.config
    return Figure(
        name=name,
        family=config.family,
        depth=config.depth,
        heads=config.heads,
        width=config.width,
        norm_first=isinstance(network, Gpt) or (isinstance(network, Transformer) and network.config.norm_first),
        text=text,
        sentence=sentence,
        given=target,
        without=off,
        disabled=missing_components(network),
        tokens={part: subject.tokens(sentence, part) for part in subject.parts},
        boxes=boxes,
        ablation=damage,
        positions=model_positional_encoding(network, PLACES),
        figure_model=subject,
    )


def max_tokens_of(model: Bert | Gpt | Transformer) -> int:
    """The most tokens a side may have: what a page has room for, and what the model has positions for."""
    config = model.config
    maps = 2 * config.heads * MAX_TOKENS
    each = 12 * config.width + config.ffn + maps
    if isinstance(model, Transformer):
        each = 2 * each + 6 * config.width + maps
    limit = min(MAX_TOKENS, ROOM // (each * config.depth), getattr(config, "positions", MAX_TOKENS))
    if limit < MIN_TOKENS + 1:
        raise InputError(f"{config.depth} layers of width {config.width} are too many for a page; take a smaller model")
    return limit


def _first(one: NamedTensor) -> dict[str, object]:
    rows: Tensor = one.tensor.reshape(-1, one.tensor.shape[-1])[:FIRST, :FIRST]
    # JSON has no infinity; a masked score is null.
    numbers = [[value if abs(value) < float("inf") else None for value in row] for row in rows.tolist()]
    return {"name": one.name, "shape": list(one.tensor.shape), "first": numbers}
