"""Figure 1 as a still drawing: the diagram with the shapes of its tensors, and the ablation beside it."""

from __future__ import annotations

import math
import textwrap
from itertools import pairwise

from regard.interpret.figure.boxes import Box
from regard.interpret.figure.figure import Figure, format_loss, outcome_name
from regard.interpret.figure.layout import BoxShape, Connector, FigureLayout
from regard.render.drawing import ACCENT, COLORS, QUIET, TEXT, Drawing, Label, Pixels, Stroke, Tile, blend

# As in web/src/views/figure/draw.tsx: the index of the color of each kind of box; others are gray.
KINDS = {"attention": 4, "ffn": 5, "embedding": 3, "linear": 0, "softmax": 2}
FRAME, BOX, REMOVED = 0.07, 0.28, 0.06  # opacity of the background of a stack, of a box and of a removed one
TOP, LEFT, BESIDE, LINE, LETTER = 56, 12, 24, 18, 7.3
HEAD = 4  # pixels of an arrow's head
MAX_OUTPUT = 60  # characters of the model's output

Mark = Label | Stroke | Tile


def figure_drawing(figure: Figure) -> Drawing:
    layout = figure.layout()
    title = f"Figure 1 of {figure.model or figure.family}"
    shapes: list[Mark] = [
        Label(LEFT, 24, title, 16),
        Label(LEFT, 42, _short(figure.text, 90), 12, color=QUIET),
        *_diagram(figure, layout),
    ]
    left, lines = LEFT + layout.width + BESIDE, _lines(figure)
    shapes += [Label(left, TOP + LINE * (number + 1), line, 12) for number, line in enumerate(lines)]
    width = max(left + LETTER * max(map(len, lines)), LEFT + LETTER * len(_short(figure.text, 90))) + LEFT
    height = max(layout.height, LINE * (len(lines) + 1)) + TOP + LEFT
    return Drawing(title, math.ceil(width), math.ceil(height), tuple(shapes))


def _diagram(figure: Figure, layout: FigureLayout) -> list[Mark]:
    shapes: list[Mark] = []
    for frame in layout.frames:
        shapes += _outline(LEFT + frame.x, TOP + frame.y, frame.width, frame.height, QUIET, blend(QUIET, FRAME))
    for line in layout.lines:
        shapes += _strokes(line)
    for shape in layout.shapes:
        shapes += _box(
            figure.box(shape.box), shape, removed=shape.kind == "positions" and "positions" in figure.without
        )
    shapes += [Label(LEFT + mark.x, TOP + mark.y + 4, mark.text, 12, "middle") for mark in layout.marks]
    return shapes


def _box(box: Box, shape: BoxShape, *, removed: bool) -> list[Mark]:
    x, y = LEFT + shape.x, TOP + shape.y
    out = box.passes[0].tensors[-1].tensor.shape
    texts = [*shape.lines, *([str(tuple(out))] if shape.height >= 28 and len(shape.lines) == 1 else [])]
    high = 12.5
    first = y + shape.height / 2 - high * (len(texts) - 1) / 2 + 4
    names = [
        Label(x + shape.width / 2, first + high * number, line, 11, "middle", QUIET if removed else TEXT)
        for number, line in enumerate(texts)
    ]
    color = COLORS[KINDS[shape.kind]] if shape.kind in KINDS else QUIET
    return [*_outline(x, y, shape.width, shape.height, TEXT, blend(color, REMOVED if removed else BOX)), *names]


def _outline(x: float, y: float, width: float, height: float, color: str, background: Pixels) -> list[Mark]:
    corners = ((x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y))
    return [Tile(x, y, width, height, background), *(Stroke(a, b, color, 0.6) for a, b in pairwise(corners))]


def _strokes(line: Connector) -> list[Mark]:
    color = {"residual": QUIET, "memory": ACCENT}.get(line.role, TEXT)
    points = [(LEFT + x, TOP + y) for x, y in zip(line.points[::2], line.points[1::2], strict=True)]
    strokes: list[Mark] = [Stroke(a, b, color, 0.8) for a, b in pairwise(points)]
    if line.arrow:
        (x, y), (u, v) = points[-1], points[-2]
        size = math.hypot(x - u, y - v) or 1.0
        ahead = ((x - u) / size, (y - v) / size)
        for side in (-1, 1):
            back = (x - HEAD * (ahead[0] + side * ahead[1]), y - HEAD * (ahead[1] - side * ahead[0]))
            strokes.append(Stroke(back, (x, y), color, 0.8))
    return strokes


def _lines(figure: Figure) -> list[str]:
    ablation = figure.ablation
    intact = ablation.outcomes[0]
    lines = ["Effect of removing each component:", *textwrap.wrap(ablation.measure, 70), ""]
    for outcome in ablation.outcomes:
        drawn = " (drawn here)" if set(outcome.without) == set(figure.without) else ""
        lines += [outcome_name(outcome) + drawn, f"  {'loss of this text':28}{format_loss(outcome.loss, intact.loss)}"]
        if ablation.sentences:
            loss = format_loss(outcome.sentences_loss, intact.sentences_loss)
            lines.append(f"  {f'of {len(ablation.sentences)} built-in sentences':28}{loss}")
        lines += [f"  output: {_short(outcome.output, MAX_OUTPUT)}", ""]
    lines += [line for remark in ablation.remarks for line in textwrap.wrap(remark, 70)]
    return lines + [f"no {name}: {reason}" for name, reason in figure.disabled.items()]


def _short(text: str, size: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= size else text[: size - 1] + "\u2026"
