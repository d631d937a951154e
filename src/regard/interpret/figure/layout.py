"""The positions of the boxes of Figure 1 and the lines between them, from bottom to top as in the paper.

Coordinates are in pixels; y grows downwards.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from regard.interpret.figure.boxes import Box

WIDE, SIDE, GAP, MARGIN = 128, 78, 40, 8  # widths: of a box, beside it, between the halves, around all
HIGH = {"attention": 44, "add": 24, "norm": 24, "ffn": 32}
PLAIN, SPACE, FORK = 28, 14, 26  # heights: of other boxes, between boxes, below an attention
RING = 9
LINES = {
    "Masked Multi-Head Attention": ("Masked Multi-", "Head Attention"),
    "Multi-Head Attention": ("Multi-Head", "Attention"),
    "Multi-Head Attention (mask off)": ("Multi-Head", "Attention", "(mask off)"),
    "Encoder-Decoder Attention": ("Encoder-Decoder", "Attention"),
    "Positional Encoding": ("Positional", "Encoding"),
}

Role = Literal["flow", "residual", "memory", "positions"]


@dataclass(frozen=True)
class BoxShape:
    box: str
    kind: str
    lines: tuple[str, ...]
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Connector:
    """A line through points x, y, x, y ..., with or without an arrow at its end."""

    points: tuple[float, ...]
    role: Role = "flow"
    arrow: bool = True


@dataclass(frozen=True)
class TextLabel:
    x: float
    y: float
    text: str


@dataclass(frozen=True)
class StackFrame:
    part: str
    x: float
    y: float
    width: float
    height: float


@dataclass
class FigureLayout:
    width: float = 0.0
    height: float = 0.0
    shapes: list[BoxShape] = field(default_factory=list)
    lines: list[Connector] = field(default_factory=list)
    marks: list[TextLabel] = field(default_factory=list)
    frames: list[StackFrame] = field(default_factory=list)


def lay_out(boxes: Sequence[Box], *, depth: int, without: Collection[str] = ()) -> FigureLayout:
    """The layout of these boxes; removed residuals and positions have no lines."""
    parts = list(dict.fromkeys(box.part for box in boxes))
    layout = FigureLayout()
    halves = []
    for number, part in enumerate(parts):
        label = "Outputs (shifted right)" if number else "Inputs"
        halves.append(_Half(layout, part, MARGIN + SIDE + number * (WIDE + GAP), label, without))
    layout.width = 2 * (MARGIN + SIDE) + WIDE * len(parts) + GAP * (len(parts) - 1)
    heights = [half.stack_boxes([box for box in boxes if box.part == half.part], depth=depth) for half in halves]
    layout.height = max(heights) + MARGIN
    if len(halves) == 2:
        _connect_memory(layout, halves[0], halves[1])
    _flip(layout)
    return layout


class _Half:
    """A column of boxes; heights are measured upwards while it is built."""

    def __init__(self, layout: FigureLayout, part: str, left: float, label: str, without: Collection[str]) -> None:
        self.layout, self.part, self.left, self.label, self.without = layout, part, left, label, without
        self.outer = -1 if part == "encoder" else 1  # the side with free space
        self.middle = left + WIDE / 2
        self.y = 0.0  # current height
        self.from_ = 0.0  # start of the line to the next box
        self.cross: float | None = None
        self.depth = 1

    def stack_boxes(self, boxes: Sequence[Box], *, depth: int) -> float:
        self.depth = depth
        self.layout.marks.append(TextLabel(self.middle, MARGIN + 8, self.label))
        self.y = self.from_ = MARGIN + 18
        for group in ("in", "layer", "out"):
            mine = [box for box in boxes if box.group == group]
            if group == "layer":
                self._frame(mine)
            else:
                for box in mine:
                    self._plain(box)
        if any(box.kind == "softmax" for box in boxes):
            self._to(self.y + SPACE + 4)
            self.layout.marks.append(TextLabel(self.middle, self.y + SPACE + 14, "Output Probabilities"))
            self.y += SPACE + 22
        return self.y

    def _plain(self, box: Box) -> None:
        if box.kind == "positions":
            return self._positions(box)
        self._to(self.y + SPACE)
        self._shape(box, self.y + SPACE)

    def _positions(self, box: Box) -> None:
        """A circle with a plus on the line, and the box beside it."""
        middle = self.y + SPACE + RING
        self._to(middle - RING)
        angles = [math.tau * corner / 16 for corner in range(17)]
        ring = [
            value
            for angle in angles
            for value in (self.middle + RING * math.cos(angle), middle + RING * math.sin(angle))
        ]
        self.layout.lines.append(Connector(tuple(ring), arrow=False))
        self.layout.marks.append(TextLabel(self.middle, middle, "+"))
        x = self.left - 6 if self.outer < 0 else self.left + WIDE + 6
        edge = self.left - SIDE if self.outer < 0 else self.left + WIDE + 6
        if "positions" not in self.without:
            self.layout.lines.append(Connector((x, middle, self.middle + self.outer * RING, middle), "positions"))
        self.layout.shapes.append(BoxShape(box.name, box.kind, LINES[box.title], edge, middle + 17, SIDE - 6, 34))
        self.y = self.from_ = middle + RING

    def _frame(self, boxes: Sequence[Box]) -> None:
        bottom = self.y + SPACE
        self.y = bottom
        begin = 0.0
        for number, box in enumerate(boxes):
            if number == 0 or boxes[number - 1].kind == "add":
                begin = self.y + SPACE / 2
            rise = FORK if box.kind == "attention" else SPACE
            bottom_of = self.y + rise
            if box.kind == "attention":
                self._fork(bottom_of, cross=box.name.endswith(".cross"))
            else:
                self._to(bottom_of)
            self._shape(box, bottom_of)
            if box.kind == "add" and "residual" not in self.without:
                self._around(begin, bottom_of + HIGH["add"] / 2)
        self.y += SPACE / 2
        x, wide = self.left - 16, WIDE + 32
        self.layout.frames.append(StackFrame(self.part, x, self.y, wide, self.y - bottom))
        beside = x - 18 if self.outer < 0 else x + wide + 18
        self.layout.marks.append(TextLabel(beside, (bottom + self.y) / 2, f"{self.depth}\u00d7"))

    def _fork(self, top: float, *, cross: bool) -> None:
        """One line becomes queries, keys and values; for cross-attention it is the queries alone."""
        level = top - (17 if cross else 12)
        if cross:
            x = self.middle + WIDE / 4
            self.layout.lines.append(Connector((self.middle, self.from_, self.middle, level, x, level, x, top)))
            self.cross = top
            return
        self.layout.lines.append(Connector((self.middle, self.from_, self.middle, top)))
        for side in (-1, 1):
            x = self.middle + side * WIDE / 4
            self.layout.lines.append(Connector((self.middle, level, x, level, x, top)))

    def _around(self, begin: float, end: float) -> None:
        edge = self.left if self.outer < 0 else self.left + WIDE
        aside = edge + self.outer * 9
        self.layout.lines.append(Connector((self.middle, begin, aside, begin, aside, end, edge, end), "residual"))

    def _to(self, top: float) -> None:
        self.layout.lines.append(Connector((self.middle, self.from_, self.middle, top)))

    def _shape(self, box: Box, bottom: float) -> None:
        high = HIGH.get(box.kind, PLAIN)
        lines = LINES.get(box.title, (box.title,))
        self.layout.shapes.append(BoxShape(box.name, box.kind, lines, self.left, bottom + high, WIDE, high))
        self.y = self.from_ = bottom + high


def _connect_memory(layout: FigureLayout, encoder: _Half, decoder: _Half) -> None:
    """The encoder's output becomes keys and values of the decoder."""
    if decoder.cross is None:
        return
    top, between = encoder.y + 10, encoder.left + WIDE + GAP / 2
    level = decoder.cross - 9  # above the queries' line, so that the two stay apart
    for x in (decoder.middle - WIDE / 4, decoder.middle):
        points = (encoder.middle, encoder.from_, encoder.middle, top, between, top, between, level, x, level, x)
        layout.lines.append(Connector((*points, decoder.cross), "memory"))


def _flip(layout: FigureLayout) -> None:
    """Convert heights above the bottom to distances from the top."""
    high = layout.height
    layout.shapes = [replace(one, y=high - one.y) for one in layout.shapes]
    layout.frames = [replace(one, y=high - one.y) for one in layout.frames]
    layout.marks = [replace(one, y=high - one.y) for one in layout.marks]
    layout.lines = [
        replace(one, points=tuple(high - value if index % 2 else value for index, value in enumerate(one.points)))
        for one in layout.lines
    ]
