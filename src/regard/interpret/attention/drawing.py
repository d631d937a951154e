"""Attention as a still drawing: lines from token to token for a head or a layer, else a small map for every head."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError
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

__all__ = ["attention_drawing"]

LETTER, SMALL_LETTER, LINE, MARGIN, ACROSS, GAP = 8.5, 7.4, 20, 16, 260, 8  # pixels
FAINT = 0.01  # weights below this are not drawn as lines
NAME = 24  # characters of a token at most
ENTRY, SAMPLE = 92, 26  # a head in the legend, and the sample of its line there
CELL, SMALL, WIDE = 132, 28, 1200  # sides of a small map, and the preferred total width
FINE = 132  # points of a small map at most, along a side


def attention_drawing(
    found: AttentionRecord, *, kind: str | None = None, layer: int | None = None, head: int | None = None
) -> Drawing:
    """A layer's heads as colored lines, or one head's; without a layer, and for an image, small maps of all heads."""
    one = found.map(kind)
    one.check(layer, head)
    if head is not None and layer is None:
        raise InputError(f"head {head} of which layer? name it too, from 0 to {one.layers - 1}")
    if layer is None or found.image is not None:
        return _grid(found, one, layer, head)
    return _lines(one, layer, head)


def _lines(one: AttentionMaps, layer: int, head: int | None) -> Drawing:
    heads = range(one.heads) if head is None else [head]
    rows, columns = (_names(side.tokens) for side in (one.rows, one.columns))
    left = MARGIN + max(map(len, rows)) * LETTER + GAP
    right = left + ACROSS
    which = f"head {head}" if head is not None else "all heads"
    title = f"{one.kind} attention, layer {layer}, {which}"
    told = heads if len(heads) > 1 else []  # one head needs no color of its own
    legend = [shape for place, number in enumerate(told) for shape in _entry(place, number)]
    top = MARGIN + (2.5 + math.ceil(len(told) / len(COLORS))) * LINE
    strokes = []
    for number in heads:
        weights, look = one.weights[layer, number], number if told else 0
        for row, column in zip(*np.nonzero(weights >= FAINT), strict=True):
            ends = (left, top + LINE * (row + 0.5)), (right, top + LINE * (column + 0.5))
            strokes.append(Stroke(*ends, line_color(look), round(float(weights[row, column]), 3), line_dash(look)))
    labels = [Label(left - GAP, top + LINE * (i + 0.5) + 5, name, anchor="end") for i, name in enumerate(rows)]
    labels += [Label(right + GAP, top + LINE * (i + 0.5) + 5, name) for i, name in enumerate(columns)]
    said = f"from left to right; a full color is 100%, below {FAINT:.0%} nothing is drawn"
    if len(heads) > len(COLORS) * len(DASHES):
        said += f"; heads {len(COLORS) * len(DASHES)} apart share color and dash"
    above = [Label(MARGIN, MARGIN + 12, title, 16), Label(MARGIN, MARGIN + LINE + 8, said, 12, color=QUIET)]
    last = MARGIN + min(len(told), len(COLORS)) * ENTRY
    wide = max(right + GAP + max(map(len, columns)) * LETTER, MARGIN + len(said) * SMALL_LETTER, last) + MARGIN
    high = top + LINE * max(len(rows), len(columns)) + MARGIN
    return Drawing(title, math.ceil(wide), math.ceil(high), (*above, *legend, *strokes, *labels))


def _entry(place: int, number: int) -> tuple[Stroke, Label]:
    """A head in the legend: a piece of its line, and its name."""
    row, column = divmod(place, len(COLORS))
    x, y = MARGIN + ENTRY * column, MARGIN + (2.5 + row) * LINE
    line = Stroke((x, y - 4), (x + SAMPLE, y - 4), line_color(number), 1.0, line_dash(number))
    return line, Label(x + SAMPLE + 4, y, f"head {number}", 12)


def _grid(found: AttentionRecord, one: AttentionMaps, layer: int | None, head: int | None) -> Drawing:
    layers = range(one.layers) if layer is None else [layer]
    heads = range(one.heads) if head is None else [head]
    cell = max(SMALL, min(2 * CELL if len(heads) * len(layers) == 1 else CELL, WIDE // len(heads)))
    left, top = MARGIN + 9 * LETTER, MARGIN + 3.5 * LINE
    title = f"{one.kind} attention, {len(layers)} x {len(heads)} maps" if layer is None else f"layer {layer}"
    said = "in each: down who looks, across who is looked at; the fullest color is that map's largest weight"
    if found.image is not None:
        said = "where [CLS] looks in the image; the fullest color is that head's largest weight"
    shapes: list[Label | Stroke | Tile] = [
        Label(MARGIN, MARGIN + 12, title, 16),
        Label(MARGIN, MARGIN + LINE + 8, said, 12, color=QUIET),
    ]
    for across, number in enumerate(heads):
        name = f"head {number}" if cell >= 60 else str(number)
        shapes.append(Label(left + (cell + GAP) * across + cell / 2, top - 6, name, 12, "middle", QUIET))
    for down, which in enumerate(layers):
        y = top + (cell + GAP) * down
        shapes.append(Label(left - GAP, y + cell / 2 + 5, f"layer {which}", 12, "end", QUIET))
        for across, number in enumerate(heads):
            pixels = _pixels(found, one.weights[which, number])
            shapes.append(Tile(left + (cell + GAP) * across, y, cell, cell, pixels))
    wide = max(left + (cell + GAP) * len(heads), MARGIN + len(said) * SMALL_LETTER) + MARGIN
    return Drawing(title, math.ceil(wide), math.ceil(top + (cell + GAP) * len(layers) + MARGIN), tuple(shapes))


def _pixels(found: AttentionRecord, weights: NDArray[np.float32]) -> Pixels:
    """A map in one color for all; over an image, only what the first token sees of its patches."""
    color = channels(COLORS[0])
    if found.image is None or found.grid is None:
        shares = _coarse(weights)
        ground = np.full((*shares.shape, 3), 255.0)
    else:
        image = found.image if found.image.ndim == 3 else np.repeat(found.image[..., None], 3, axis=2)
        patches = weights[0, 1:].reshape(found.grid)
        down, across = (np.arange(size) * count // size for size, count in zip(image.shape, found.grid, strict=False))
        shares, ground = patches[down][:, across], 255 - (255 - image.astype(np.float64)) * 0.6
    opacity = (shares / max(float(shares.max()), 1e-12))[..., None]
    if found.image is not None:
        opacity = opacity * 0.8
    pixels: Pixels = np.rint(ground * (1 - opacity) + color * opacity).astype(np.uint8)
    return pixels


def _coarse(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """At most FINE points a side: of neighbours the largest."""
    for axis in (0, 1):
        count = weights.shape[axis]
        if count > FINE:
            starts = np.arange(FINE) * count // FINE
            weights = np.maximum.reduceat(weights, starts, axis=axis)
    return weights


def _names(tokens: tuple[str, ...]) -> list[str]:
    texts = [" ".join(token.split()) for token in tokens]
    return [text if len(text) <= NAME else text[: NAME - 1] + "…" for text in texts]
