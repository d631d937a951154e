"""Figure 1 as one still picture: the diagram with the shapes of its tensors, and the damage of every switch beside it.

Knows a figure and shapes on a plane. Knows no browser; `attention_drawing` makes SVG and PNG of it.
"""

from __future__ import annotations

import math
import textwrap
from itertools import pairwise

from regard.interpret.figure.ablation import AblationOutcome
from regard.interpret.figure.boxes import Box
from regard.interpret.figure.figure import Figure
from regard.interpret.figure.layout import BoxShape, Connector, FigureLayout
from regard.render.drawing import ACCENT, COLORS, QUIET, TEXT, Drawing, Label, Pixels, Stroke, Tile, blend

__all__ = ["figure_picture"]

# As in web/src/views/figure/strokes.ts: the colour of a kind of box by its number, others are grey.
KINDS = {"attention": 4, "ffn": 5, "embedding": 3, "linear": 0, "softmax": 2}
FRAME, BOX, GONE = 0.07, 0.28, 0.06  # how full the grounds of a stack, of a box and of one that is switched off are
TOP, LEFT, BESIDE, LINE, LETTER = 56, 12, 24, 18, 7.3
HEAD = 4  # pixels of an arrow's head
SAID = 60  # letters of what a model says

Mark = Label | Stroke | Tile


def figure_picture(found: Figure) -> Drawing:
    layout = found.layout()
    title = f"Figure 1 of {found.name or found.family}"
    shapes: list[Mark] = [
        Label(LEFT, 24, title, 16),
        Label(LEFT, 42, _short(found.text, 90), 12, color=QUIET),
        *_diagram(found, layout),
    ]
    left, lines = LEFT + layout.width + BESIDE, _lines(found)
    shapes += [Label(left, TOP + LINE * (number + 1), line, 12) for number, line in enumerate(lines)]
    width = max(left + LETTER * max(map(len, lines)), LEFT + LETTER * len(_short(found.text, 90))) + LEFT
    height = max(layout.height, LINE * (len(lines) + 1)) + TOP + LEFT
    return Drawing(title, math.ceil(width), math.ceil(height), tuple(shapes))


def _diagram(found: Figure, layout: FigureLayout) -> list[Mark]:
    shapes: list[Mark] = []
    for frame in layout.frames:
        shapes += _outline(LEFT + frame.x, TOP + frame.y, frame.width, frame.height, QUIET, blend(QUIET, FRAME))
    for line in layout.lines:
        shapes += _strokes(line)
    for shape in layout.shapes:
        shapes += _box(found.box(shape.box), shape, gone=shape.kind == "positions" and "positions" in found.without)
    shapes += [Label(LEFT + mark.x, TOP + mark.y + 4, mark.text, 12, "middle") for mark in layout.marks]
    return shapes


def _box(box: Box, shape: BoxShape, *, gone: bool) -> list[Mark]:
    x, y = LEFT + shape.x, TOP + shape.y
    out = box.steps[0].values[-1].tensor.shape
    said = [*shape.lines, *([str(tuple(out))] if shape.height >= 28 and len(shape.lines) == 1 else [])]
    high = 12.5
    first = y + shape.height / 2 - high * (len(said) - 1) / 2 + 4
    names = [
        Label(x + shape.width / 2, first + high * number, line, 11, "middle", QUIET if gone else TEXT)
        for number, line in enumerate(said)
    ]
    colour = COLORS[KINDS[shape.kind]] if shape.kind in KINDS else QUIET
    return [*_outline(x, y, shape.width, shape.height, TEXT, blend(colour, GONE if gone else BOX)), *names]


def _outline(x: float, y: float, width: float, height: float, colour: str, ground: Pixels) -> list[Mark]:
    corners = ((x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y))
    return [Tile(x, y, width, height, ground), *(Stroke(a, b, colour, 0.6) for a, b in pairwise(corners))]


def _strokes(line: Connector) -> list[Mark]:
    colour = {"residual": QUIET, "memory": ACCENT}.get(line.role, TEXT)
    points = [(LEFT + x, TOP + y) for x, y in zip(line.points[::2], line.points[1::2], strict=True)]
    strokes: list[Mark] = [Stroke(a, b, colour, 0.8) for a, b in pairwise(points)]
    if line.arrow:
        (x, y), (u, v) = points[-1], points[-2]
        size = math.hypot(x - u, y - v) or 1.0
        ahead = ((x - u) / size, (y - v) / size)
        for side in (-1, 1):
            back = (x - HEAD * (ahead[0] + side * ahead[1]), y - HEAD * (ahead[1] - side * ahead[0]))
            strokes.append(Stroke(back, (x, y), colour, 0.8))
    return strokes


def _lines(found: Figure) -> list[str]:
    damage = found.ablation
    whole = damage.outcomes[0]
    lines = ["What each switch costs:", *_wrapped(damage.measure), ""]
    for one in damage.outcomes:
        lines += [_name(one, found.without), _row("loss of this text", one.loss, whole.loss)]
        if damage.sentences:
            ours = f"of {len(damage.sentences)} sentences of ours"
            lines.append(_row(ours, one.sentences_loss, whole.sentences_loss))
        lines += [f"  says: {_short(one.says, SAID)}", ""]
    lines += [line for remark in damage.remarks for line in _wrapped(remark)]
    lines += [f"no {name}: {reason}" for name, reason in found.disabled.items()]
    return lines


def _name(one: AblationOutcome, off: tuple[str, ...]) -> str:
    name = ", ".join(f"no {switch}" for switch in one.without) or "the whole model"
    return f"{name}{' (drawn here)' if set(one.without) == set(off) else ''}"


def _row(name: str, loss: float | None, whole: float | None) -> str:
    if loss is None or whole is None:
        return f"  {name:24}not known"
    return f"  {name:24}{loss:.3f}" + ("" if loss == whole else f"  ({loss - whole:+z.3f})")


def _wrapped(text: str, width: int = 70) -> list[str]:
    return textwrap.wrap(text, width)


def _short(text: str, size: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= size else text[: size - 1] + "\u2026"
