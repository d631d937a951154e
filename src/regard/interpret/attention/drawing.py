"""Attention as a still drawing: lines from token to token for a head or a layer, else a small map for every head."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from regard.interpret.attention.maps import AttentionMaps, AttentionRecord
from regard.render.drawing import (
    COLORS,
    DASHES,
    QUIET,
    Drawing,
    Label,
    Pixels,
    Stroke,
    Tile,
    channels,
    line_color,
    line_dash,
)

LETTER, SMALL_LETTER, LINE, MARGIN, ACROSS, GAP = 8.5, 7.4, 20, 16, 260, 8  # pixels
FAINT = 0.01  # weights below this are not drawn as lines
NAME = 24  # characters of a token at most
ENTRY, SAMPLE = 92, 26  # a head in the legend, and the sample of its line there
CELL, SMALL, WIDE = 132, 28, 1200  # sides of a small map, and the preferred total width
FINE = 132  # points of a small map at most, along a side


def attention_drawing(record: AttentionRecord) -> Drawing:
    """The selected layer's heads, or head, as colored lines; without a layer, and for an image, a map of each head."""
    maps = record.map(record.kind)
    if record.layer is None or record.image is not None:
        return _grid(record, maps)
    return _lines(maps, record.layer, record.head)


def _lines(maps: AttentionMaps, layer: int, head: int | None) -> Drawing:
    heads = maps.heads if head is None else [head]
    rows, columns = (_names(axis.tokens) for axis in (maps.rows, maps.columns))
    left = MARGIN + max(map(len, rows)) * LETTER + GAP
    right = left + ACROSS
    which = f"head {head}" if head is not None else "all heads"
    title = f"{maps.kind} attention, layer {layer}, {which}"
    in_legend = heads if len(heads) > 1 else []  # a single head needs no color of its own
    legend = [shape for index, number in enumerate(in_legend) for shape in _legend_entry(index, number)]
    top = MARGIN + (2.5 + math.ceil(len(in_legend) / len(COLORS))) * LINE
    strokes = []
    for number in heads:
        weights, look = maps.weights[layer, number], number if in_legend else 0
        for row, column in zip(*np.nonzero(weights >= FAINT), strict=True):
            ends = (left, top + LINE * (row + 0.5)), (right, top + LINE * (column + 0.5))
            strokes.append(Stroke(*ends, line_color(look), round(float(weights[row, column]), 3), line_dash(look)))
    labels = [Label(left - GAP, top + LINE * (i + 0.5) + 5, name, anchor="end") for i, name in enumerate(rows)]
    labels += [Label(right + GAP, top + LINE * (i + 0.5) + 5, name) for i, name in enumerate(columns)]
    caption = f"from left to right; a full color is 100%, below {FAINT:.0%} nothing is drawn"
    if len(heads) > len(COLORS) * len(DASHES):
        caption += f"; heads {len(COLORS) * len(DASHES)} apart share color and dash"
    above = [Label(MARGIN, MARGIN + 12, title, 16), Label(MARGIN, MARGIN + LINE + 8, caption, 12, color=QUIET)]
    last = MARGIN + min(len(in_legend), len(COLORS)) * ENTRY
    wide = max(right + GAP + max(map(len, columns)) * LETTER, MARGIN + len(caption) * SMALL_LETTER, last) + MARGIN
    high = top + LINE * max(len(rows), len(columns)) + MARGIN
    return Drawing(title, math.ceil(wide), math.ceil(high), (*above, *legend, *strokes, *labels))


def _legend_entry(index: int, number: int) -> tuple[Stroke, Label]:
    """A sample of a head's line, and its name."""
    row, column = divmod(index, len(COLORS))
    x, y = MARGIN + ENTRY * column, MARGIN + (2.5 + row) * LINE
    line = Stroke((x, y - 4), (x + SAMPLE, y - 4), line_color(number), 1.0, line_dash(number))
    return line, Label(x + SAMPLE + 4, y, f"head {number}", 12)


def _grid(record: AttentionRecord, maps: AttentionMaps) -> Drawing:
    layer = record.layer
    layers = maps.layers if layer is None else [layer]
    heads = maps.heads if record.head is None else [record.head]
    cell = max(SMALL, min(2 * CELL if len(heads) * len(layers) == 1 else CELL, WIDE // len(heads)))
    left, top = MARGIN + 9 * LETTER, MARGIN + 3.5 * LINE
    title = f"{maps.kind} attention, {len(layers)} x {len(heads)} maps" if layer is None else f"layer {layer}"
    caption = "rows are queries, columns are keys; the fullest color is the largest weight of each map"
    if record.image is not None:
        caption = "where [CLS] attends in the image; the fullest color is the largest weight of each head"
    shapes: list[Label | Stroke | Tile] = [
        Label(MARGIN, MARGIN + 12, title, 16),
        Label(MARGIN, MARGIN + LINE + 8, caption, 12, color=QUIET),
    ]
    for across, number in enumerate(heads):
        name = f"head {number}" if cell >= 60 else str(number)
        shapes.append(Label(left + (cell + GAP) * across + cell / 2, top - 6, name, 12, "middle", QUIET))
    for down, which in enumerate(layers):
        y = top + (cell + GAP) * down
        shapes.append(Label(left - GAP, y + cell / 2 + 5, f"layer {which}", 12, "end", QUIET))
        for across, number in enumerate(heads):
            pixels = _pixels(record, maps.weights[which, number])
            shapes.append(Tile(left + (cell + GAP) * across, y, cell, cell, pixels))
    wide = max(left + (cell + GAP) * len(heads), MARGIN + len(caption) * SMALL_LETTER) + MARGIN
    return Drawing(title, math.ceil(wide), math.ceil(top + (cell + GAP) * len(layers) + MARGIN), tuple(shapes))


def _pixels(record: AttentionRecord, weights: NDArray[np.float32]) -> Pixels:
    """A map in one color; over an image, only the weights of [CLS] for the patches."""
    color = channels(COLORS[0])
    if record.image is None or record.grid is None:
        values = _coarse(weights)
        ground = np.full((*values.shape, 3), 255.0)
    else:
        image = record.image if record.image.ndim == 3 else np.repeat(record.image[..., None], 3, axis=2)
        patches = weights[0, 1:].reshape(record.grid)
        down, across = (np.arange(size) * count // size for size, count in zip(image.shape, record.grid, strict=False))
        values, ground = patches[down][:, across], 255 - (255 - image.astype(np.float64)) * 0.6
    opacity = (values / max(float(values.max()), 1e-12))[..., None]
    if record.image is not None:
        opacity = opacity * 0.8
    pixels: Pixels = np.rint(ground * (1 - opacity) + color * opacity).astype(np.uint8)
    return pixels


def _coarse(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """At most FINE points a side: the maximum of each neighborhood."""
    for axis in (0, 1):
        count = weights.shape[axis]
        if count > FINE:
            starts = np.arange(FINE) * count // FINE
            weights = np.maximum.reduceat(weights, starts, axis=axis)
    return weights


def _names(tokens: tuple[str, ...]) -> list[str]:
    texts = [" ".join(token.split()) for token in tokens]
    return [text if len(text) <= NAME else text[: NAME - 1] + "…" for text in texts]
