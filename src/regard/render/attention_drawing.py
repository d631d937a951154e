"""Attention as one still picture: lines from token to token for a head or a layer, else a small map for every head.

Knows maps and shapes on a plane, and how those become SVG or PNG. Knows no browser and no model. Colours are those of
Okabe and Ito, which people of every colour sight can tell apart. There are eight: the heads behind them are dashed.
"""

from __future__ import annotations

import html
import io
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError
from regard.interpret.attention.maps import AttentionMaps, AttentionRecord
from regard.interpret.images import data_uri

if TYPE_CHECKING:
    from PIL import ImageFont

__all__ = ["Drawing", "blend_with_white", "draw_attention", "to_png", "to_svg"]

Pixels = NDArray[np.uint8]

# As in web/src/theme.tsx, light.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#882255")
DASHES: tuple[tuple[int, ...], ...] = ((), (8, 4), (2, 3), (10, 3, 2, 3))  # strokes and gaps, in pixels
TEXT, QUIET, ACCENT, OTHER = "#1b1f24", "#59636e", "#0b5cad", "#b84a00"
LETTER, SMALL_LETTER, LINE, MARGIN, ACROSS, GAP = 8.5, 7.4, 20, 16, 260, 8  # pixels
FAINT = 0.01  # a weight below this is not drawn as a line
NAME = 24  # letters of a token at most
ENTRY, SAMPLE = 92, 26  # a head in the legend, and the piece of its line there
CELL, SMALL, WIDE = 132, 28, 1200  # sides of a small map, and the width that all of them should have
FINE = 132  # points of a small map at most, along a side

# What XML cannot hold, even escaped: controls but tab and line ends, halves of surrogate pairs, two non-characters.
UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class TextMark:
    x: float
    y: float
    text: str
    size: int = 14
    anchor: str = "start"
    colour: str = TEXT


@dataclass(frozen=True)
class LineMark:
    start: tuple[float, float]
    end: tuple[float, float]
    colour: str
    opacity: float
    dash: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class ImageMark:
    """Pixels (height, width, 3) stretched over a rectangle."""

    x: float
    y: float
    width: float
    height: float
    pixels: Pixels


@dataclass(frozen=True, eq=False)
class Drawing:
    """Shapes in the order in which they are drawn, on white."""

    title: str
    width: int
    height: int
    shapes: tuple[TextMark | LineMark | ImageMark, ...]


def draw_attention(
    found: AttentionRecord, *, kind: str | None = None, layer: int | None = None, head: int | None = None
) -> Drawing:
    """A layer's heads as coloured lines, or one head's; without a layer, and for an image, small maps of all heads."""
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
    told = heads if len(heads) > 1 else []  # one head needs no colour of its own
    legend = [shape for place, number in enumerate(told) for shape in _entry(place, number)]
    top = MARGIN + (2.5 + math.ceil(len(told) / len(COLORS))) * LINE
    strokes = []
    for number in heads:
        weights, look = one.weights[layer, number], number if told else 0
        for row, column in zip(*np.nonzero(weights >= FAINT), strict=True):
            ends = (left, top + LINE * (row + 0.5)), (right, top + LINE * (column + 0.5))
            strokes.append(LineMark(*ends, _colour(look), round(float(weights[row, column]), 3), _dash(look)))
    labels = [TextMark(left - GAP, top + LINE * (i + 0.5) + 5, name, anchor="end") for i, name in enumerate(rows)]
    labels += [TextMark(right + GAP, top + LINE * (i + 0.5) + 5, name) for i, name in enumerate(columns)]
    said = f"from left to right; a full colour is 100%, below {FAINT:.0%} nothing is drawn"
    if len(heads) > len(COLORS) * len(DASHES):
        said += f"; heads {len(COLORS) * len(DASHES)} apart share colour and dash"
    above = [TextMark(MARGIN, MARGIN + 12, title, 16), TextMark(MARGIN, MARGIN + LINE + 8, said, 12, colour=QUIET)]
    last = MARGIN + min(len(told), len(COLORS)) * ENTRY
    wide = max(right + GAP + max(map(len, columns)) * LETTER, MARGIN + len(said) * SMALL_LETTER, last) + MARGIN
    high = top + LINE * max(len(rows), len(columns)) + MARGIN
    return Drawing(title, math.ceil(wide), math.ceil(high), (*above, *legend, *strokes, *labels))


def _entry(place: int, number: int) -> tuple[LineMark, TextMark]:
    """A head in the legend: a piece of its line, and its name."""
    row, column = divmod(place, len(COLORS))
    x, y = MARGIN + ENTRY * column, MARGIN + (2.5 + row) * LINE
    line = LineMark((x, y - 4), (x + SAMPLE, y - 4), _colour(number), 1.0, _dash(number))
    return line, TextMark(x + SAMPLE + 4, y, f"head {number}", 12)


def _grid(found: AttentionRecord, one: AttentionMaps, layer: int | None, head: int | None) -> Drawing:
    layers = range(one.layers) if layer is None else [layer]
    heads = range(one.heads) if head is None else [head]
    cell = max(SMALL, min(2 * CELL if len(heads) * len(layers) == 1 else CELL, WIDE // len(heads)))
    left, top = MARGIN + 9 * LETTER, MARGIN + 3.5 * LINE
    title = f"{one.kind} attention, {len(layers)} x {len(heads)} maps" if layer is None else f"layer {layer}"
    said = "in each: down who looks, across who is looked at; the fullest colour is that map's largest weight"
    if found.image is not None:
        said = "where [CLS] looks in the image; the fullest colour is that head's largest weight"
    shapes: list[TextMark | LineMark | ImageMark] = [
        TextMark(MARGIN, MARGIN + 12, title, 16),
        TextMark(MARGIN, MARGIN + LINE + 8, said, 12, colour=QUIET),
    ]
    for across, number in enumerate(heads):
        name = f"head {number}" if cell >= 60 else str(number)
        shapes.append(TextMark(left + (cell + GAP) * across + cell / 2, top - 6, name, 12, "middle", QUIET))
    for down, which in enumerate(layers):
        y = top + (cell + GAP) * down
        shapes.append(TextMark(left - GAP, y + cell / 2 + 5, f"layer {which}", 12, "end", QUIET))
        for across, number in enumerate(heads):
            pixels = _pixels(found, one.weights[which, number])
            shapes.append(ImageMark(left + (cell + GAP) * across, y, cell, cell, pixels))
    wide = max(left + (cell + GAP) * len(heads), MARGIN + len(said) * SMALL_LETTER) + MARGIN
    return Drawing(title, math.ceil(wide), math.ceil(top + (cell + GAP) * len(layers) + MARGIN), tuple(shapes))


def _pixels(found: AttentionRecord, weights: NDArray[np.float32]) -> Pixels:
    """A map in one colour for all; over an image, only what the first token sees of its patches."""
    colour = _channels(COLORS[0])
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
    pixels: Pixels = np.rint(ground * (1 - opacity) + colour * opacity).astype(np.uint8)
    return pixels


def _coarse(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """At most FINE points a side: of neighbours the largest."""
    for axis in (0, 1):
        count = weights.shape[axis]
        if count > FINE:
            starts = np.arange(FINE) * count // FINE
            weights = np.maximum.reduceat(weights, starts, axis=axis)
    return weights


def blend_with_white(colour: str, opacity: float) -> Pixels:
    """One pixel of a colour that lets the white below it through."""
    pixel: Pixels = np.rint(255 - (255 - _channels(colour)) * opacity).astype(np.uint8)[None, None]
    return pixel


def _channels(colour: str) -> NDArray[np.int64]:
    return np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)])


def to_svg(picture: Drawing) -> str:
    """A whole document, which names no address but that of its own language."""
    size = f'width="{picture.width}" height="{picture.height}" viewBox="0 0 {picture.width} {picture.height}"'
    title = _escaped(picture.title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" {size} '
        'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace">\n'
        f'<title>{title}</title>\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(map(_markup, picture.shapes))
        + "\n</svg>\n"
    )


def _markup(shape: TextMark | LineMark | ImageMark) -> str:
    if isinstance(shape, TextMark):
        place = f'x="{shape.x:g}" y="{shape.y:g}" font-size="{shape.size}"'
        return f'<text {place} text-anchor="{shape.anchor}" fill="{shape.colour}">{_escaped(shape.text)}</text>'
    if isinstance(shape, LineMark):
        (x1, y1), (x2, y2) = shape.start, shape.end
        ends = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
        dashed = f' stroke-dasharray="{" ".join(map(str, shape.dash))}"' if shape.dash else ""
        return f'<line {ends} stroke="{shape.colour}" stroke-width="2" stroke-opacity="{shape.opacity:g}"{dashed}/>'
    place = f'x="{shape.x:g}" y="{shape.y:g}" width="{shape.width:g}" height="{shape.height:g}"'
    look = 'preserveAspectRatio="none" style="image-rendering: pixelated"'
    return f'<image {place} {look} href="{data_uri(shape.pixels)}"/>'


def to_png(picture: Drawing, *, scale: int = 2) -> bytes:
    """Its pixels, `scale` times as many a side. Letters that the font lacks become boxes; an SVG has them all."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise InputError("a .png needs Pillow: pip install 'regard[images]'; an .svg or .html needs nothing") from None
    canvas = Image.new("RGB", (picture.width * scale, picture.height * scale), "white")
    draw = ImageDraw.Draw(canvas, "RGBA")  # so that what is drawn lets through what lies below
    for shape in picture.shapes:
        if isinstance(shape, TextMark):
            anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
            place = (shape.x * scale, shape.y * scale)
            draw.text(place, shape.text, fill=shape.colour, font=_font(shape.size * scale), anchor=anchor)
        elif isinstance(shape, LineMark):
            for (x1, y1), (x2, y2) in _pieces(shape):
                ends = [(x1 * scale, y1 * scale), (x2 * scale, y2 * scale)]
                draw.line(ends, fill=f"{shape.colour}{round(shape.opacity * 255):02x}", width=2 * scale)
        else:
            size = (max(1, round(shape.width * scale)), max(1, round(shape.height * scale)))
            tile = Image.fromarray(shape.pixels).resize(size, Image.Resampling.NEAREST)
            canvas.paste(tile, (round(shape.x * scale), round(shape.y * scale)))
    content = io.BytesIO()
    canvas.save(content, "PNG")
    return content.getvalue()


def _pieces(stroke: LineMark) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """What of a dashed line is drawn."""
    (x1, y1), (x2, y2) = stroke.start, stroke.end
    length = math.hypot(x2 - x1, y2 - y1)
    if not stroke.dash or not length:
        yield stroke.start, stroke.end
        return
    at, lengths = 0.0, itertools.cycle(stroke.dash)
    while at < length:
        here, there = at / length, min(1.0, (at + (drawn := next(lengths))) / length)
        yield (x1 + here * (x2 - x1), y1 + here * (y2 - y1)), (x1 + there * (x2 - x1), y1 + there * (y2 - y1))
        at += drawn + next(lengths)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    from PIL import ImageFont

    try:
        return ImageFont.truetype("DejaVuSansMono.ttf", size)
    except OSError:
        return ImageFont.load_default(size)


def _colour(number: int) -> str:
    return COLORS[number % len(COLORS)]


def _dash(number: int) -> tuple[int, ...]:
    return DASHES[number // len(COLORS) % len(DASHES)]


def _names(tokens: tuple[str, ...]) -> list[str]:
    texts = [" ".join(token.split()) for token in tokens]
    return [text if len(text) <= NAME else text[: NAME - 1] + "…" for text in texts]


def _escaped(text: str) -> str:
    return html.escape(UNWRITABLE.sub("\ufffd", text))
