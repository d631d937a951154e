"""Figure 1 of "Attention Is All You Need", drawn of one model and one sentence: boxes, tensors, code and damage.

Knows how the parts of this folder come together. Knows nothing of files and pages; `payload` makes a page's document.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from regard.checkpoints.ready import evaluation_mode
from regard.errors import InputError
from regard.interpret.attention.looking import Reader
from regard.interpret.figure.boxes import Box, Values, watching
from regard.interpret.figure.damage import Damage, Known, measure_damage
from regard.interpret.figure.layout import Layout, draw
from regard.interpret.figure.positions import Positions, positions_of
from regard.interpret.figure.sentences import sentences_for
from regard.interpret.figure.subjects import FEWEST, Sentence, Subject, subject_of
from regard.interpret.figure.switches import SWITCHES, missing, named, without
from regard.interpret.figure.walk import walk
from regard.models import Bert, Gpt, Transformer

__all__ = ["LONGEST", "ROOM", "Figure", "figure", "limit_of"]

LONGEST = 32  # tokens of a text
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
    sentence: Sentence
    given: str | None
    off: tuple[str, ...]
    disabled: dict[str, str]
    tokens: dict[str, tuple[str, ...]]
    boxes: tuple[Box, ...]
    damage: Damage
    positions: Positions | None
    subject: Subject

    def layout(self) -> Layout:
        return draw(self.boxes, depth=self.depth, off=self.off)

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
            "without": list(self.off),
            "layer": layer,
            "tokens": {part: list(tokens) for part, tokens in self.tokens.items()},
            "boxes": [self._box(box, layer) for box in self.boxes],
            "switches": self.switches(),
            "damage": self.damage.document(),
            "notes": self.notes(),
        }

    def switches(self) -> list[dict[str, object]]:
        return [
            {"name": name, "title": title, "off": name in self.off, "disabled": self.disabled.get(name)}
            for name, title in SWITCHES.items()
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


def figure(
    model: nn.Module,
    reader: Reader,
    text: str,
    target: str | None = None,
    *,
    switches: str = "",
    name: str = "",
    known: Known | None = None,
) -> Figure:
    """One sentence through every box of the figure, with some parts of the model switched off.

    A translator decodes `target`, or its own translation where there is none. `switches` names what is off, such as
    "mask,positions". The damage is measured over the text, and over sentences of our own that go with the model's
    `name` (see `sentences`); `known` keeps what was measured of those, for a model that does not change.
    """
    if not text.strip():
        raise InputError("the text is empty; expected at least a word")
    subject, off = subject_of(model, reader), named(switches)
    network = subject.model
    limit = limit_of(network)
    with evaluation_mode(network):
        sentence = subject.read(text, target, limit=limit)
        with without(network, off), watching(network) as calls:
            logits = subject.run(sentence)
        boxes = walk(network, calls, logits, off)
        sentences = sentences_for(name, translates=len(subject.parts) == 2)
        damage = measure_damage(subject, sentence, off, sentences=sentences, limit=limit, known=known)
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
        off=off,
        disabled=missing(network),
        tokens={part: subject.tokens(sentence, part) for part in subject.parts},
        boxes=boxes,
        damage=damage,
        positions=positions_of(network, PLACES),
        subject=subject,
    )


def limit_of(model: Bert | Gpt | Transformer) -> int:
    """The most tokens a side may have: what a page has room for, and what the model has positions for."""
    config = model.config
    maps = 2 * config.heads * LONGEST
    each = 12 * config.width + config.ffn + maps
    if isinstance(model, Transformer):
        each = 2 * each + 6 * config.width + maps
    limit = min(LONGEST, ROOM // (each * config.depth), getattr(config, "positions", LONGEST))
    if limit < FEWEST + 1:
        raise InputError(f"{config.depth} layers of width {config.width} are too many for a page; take a smaller model")
    return limit


def _first(one: Values) -> dict[str, object]:
    rows: Tensor = one.tensor.reshape(-1, one.tensor.shape[-1])[:FIRST, :FIRST]
    # JSON has no infinity; a masked score is null.
    numbers = [[value if abs(value) < float("inf") else None for value in row] for row in rows.tolist()]
    return {"name": one.name, "shape": list(one.tensor.shape), "first": numbers}
