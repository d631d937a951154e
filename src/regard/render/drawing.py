"""Still drawings made of labels, strokes and tiles, written as SVG or PNG.

Colors are those of Okabe and Ito, which can be told apart with every kind of color vision. There are eight: the lines
after the eighth are dashed. Independent of models, results and browsers.
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
from regard.render.png import data_uri

if TYPE_CHECKING:
    from PIL import ImageFont

Pixels = NDArray[np.uint8]

# The light theme of web/src/theme.tsx.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#882255")
DASHES: tuple[tuple[int, ...], ...] = ((), (8, 4), (2, 3), (10, 3, 2, 3))  # strokes and gaps, in pixels
TEXT, QUIET, ACCENT, OTHER = "#1b1f24", "#59636e", "#0b5cad", "#b84a00"

# Characters that XML cannot hold, even escaped: controls except tab and line ends, lone surrogates, two non-characters.
UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Label:
    x: float
    y: float
    text: str
    size: int = 14
    anchor: str = "start"
    color: str = TEXT


@dataclass(frozen=True)
class Stroke:
    start: tuple[float, float]
    end: tuple[float, float]
    color: str
    opacity: float
    dash: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Tile:
    """Pixels (height, width, 3) stretched over a rectangle."""

    x: float
    y: float
    width: float
    height: float
    pixels: Pixels


@dataclass(frozen=True, eq=False)
class Drawing:
    """Shapes on white, in drawing order."""

    title: str
    width: int
    height: int
    shapes: tuple[Label | Stroke | Tile, ...]


def blend(color: str, opacity: float) -> Pixels:
    """One pixel of a color over white."""
    pixel: Pixels = np.rint(255 - (255 - channels(color)) * opacity).astype(np.uint8)[None, None]
    return pixel


def channels(color: str) -> NDArray[np.int64]:
    return np.array([int(color[start : start + 2], 16) for start in (1, 3, 5)])


def svg(drawing: Drawing) -> str:
    """A complete SVG document that refers to nothing outside itself."""
    size = f'width="{drawing.width}" height="{drawing.height}" viewBox="0 0 {drawing.width} {drawing.height}"'
    title = _escaped(drawing.title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" {size} '
        'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace">\n'
        f'<title>{title}</title>\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(map(_markup, drawing.shapes))
        + "\n</svg>\n"
    )


def _markup(shape: Label | Stroke | Tile) -> str:
    if isinstance(shape, Label):
        position = f'x="{shape.x:g}" y="{shape.y:g}" font-size="{shape.size}"'
        return f'<text {position} text-anchor="{shape.anchor}" fill="{shape.color}">{_escaped(shape.text)}</text>'
    if isinstance(shape, Stroke):
        (x1, y1), (x2, y2) = shape.start, shape.end
        ends = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
        dashed = f' stroke-dasharray="{" ".join(map(str, shape.dash))}"' if shape.dash else ""
        return f'<line {ends} stroke="{shape.color}" stroke-width="2" stroke-opacity="{shape.opacity:g}"{dashed}/>'
    position = f'x="{shape.x:g}" y="{shape.y:g}" width="{shape.width:g}" height="{shape.height:g}"'
    look = 'preserveAspectRatio="none" style="image-rendering: pixelated"'
    return f'<image {position} {look} href="{data_uri(shape.pixels)}"/>'


def png(drawing: Drawing, *, scale: int = 2) -> bytes:
    """The drawing as PNG, enlarged `scale` times. Characters that the font lacks become boxes; SVG has them all."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise InputError("a .png needs Pillow: pip install 'regard[images]'; an .svg or .html needs nothing") from None
    canvas = Image.new("RGB", (drawing.width * scale, drawing.height * scale), "white")
    draw = ImageDraw.Draw(canvas, "RGBA")  # RGBA: strokes are blended with what lies below
    for shape in drawing.shapes:
        if isinstance(shape, Label):
            anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
            position = (shape.x * scale, shape.y * scale)
            draw.text(position, shape.text, fill=shape.color, font=_font(shape.size * scale), anchor=anchor)
        elif isinstance(shape, Stroke):
            for (x1, y1), (x2, y2) in _pieces(shape):
                ends = [(x1 * scale, y1 * scale), (x2 * scale, y2 * scale)]
                draw.line(ends, fill=f"{shape.color}{round(shape.opacity * 255):02x}", width=2 * scale)
        else:
            size = (max(1, round(shape.width * scale)), max(1, round(shape.height * scale)))
            tile = Image.fromarray(shape.pixels).resize(size, Image.Resampling.NEAREST)
            canvas.paste(tile, (round(shape.x * scale), round(shape.y * scale)))
    content = io.BytesIO()
    canvas.save(content, "PNG")
    return content.getvalue()


def _pieces(stroke: Stroke) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """The visible segments of a line."""
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


def line_color(number: int) -> str:
    return COLORS[number % len(COLORS)]


def line_dash(number: int) -> tuple[int, ...]:
    return DASHES[number // len(COLORS) % len(DASHES)]


def _escaped(text: str) -> str:
    return html.escape(UNWRITABLE.sub("\ufffd", text))
