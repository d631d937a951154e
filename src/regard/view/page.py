"""One self-contained page: HTML, style and drawings in a single file that needs no network and no script.

Knows HTML, SVG and colours, and that any text may hold anything. Knows nothing of tensors, models or files.

    page("Title", [section("Heading", paragraph("A text."), heat_map(weights, rows=..., columns=..., ...))])
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from typing import NewType

__all__ = ["Html", "figures", "heat_map", "page", "paragraph", "section", "table"]

Html = NewType("Html", str)  # finished markup; a plain str is text, and is escaped on its way into markup

CELL, NARROW, LETTER, LINE, LEGEND = 56, 18, 9.1, 20, 200  # the drawing's measures, in pixels at full size
FEW = 16  # columns up to which a cell has room for its number
STRONG = 0.655  # where the other colour for a cell's number becomes the more legible one, in light and in dark

STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --text: #1b1f24; --quiet: #59636e; --rule: #d1d9e0;
  --ink: #06306b; --weak: #000000; --strong: #ffffff }
@media (prefers-color-scheme: dark) {
  :root { --page: #11151a; --text: #e6edf3; --quiet: #9aa6b2; --rule: #333c46;
    --ink: #66aef2; --weak: #ffffff; --strong: #000000 }
}
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 48rem; padding: 1.5rem 1rem 3rem; background: var(--page); color: var(--text);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: break-word }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem }
p { margin: .6rem 0 }
.wide { overflow-x: auto }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums }
caption { text-align: left; color: var(--quiet); font-size: .9rem; padding-bottom: .3rem }
th, td { text-align: right; padding: .35rem .7rem; border-bottom: 1px solid var(--rule); vertical-align: baseline }
th { font-weight: 600; color: var(--quiet); font-size: .9rem }
tr > :first-child { text-align: left; padding-left: 0 }
tbody th { color: var(--text); font-size: 1rem; font-weight: 400 }
.figures { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; align-items: flex-start }
figure { margin: .8rem 0; max-width: 100% }
figcaption { font-weight: 600; margin-bottom: .4rem }
svg { display: block; max-width: 100%; height: auto }
svg text { fill: var(--text); font: 15px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
svg .quiet { fill: var(--quiet); font: 14px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
svg .number { fill: var(--weak); font-size: 14px }
svg .strong { fill: var(--strong) }
svg rect { fill: var(--ink) }
svg .frame { fill: none; stroke: var(--rule) }
@media (max-width: 34rem) {
  table, tbody th { font-size: .84rem }
  th { font-size: .78rem }
  th, td { padding: .3rem .25rem }
}
footer { margin-top: 3rem; color: var(--quiet); font-size: .85rem }
"""


def page(title: str, parts: Iterable[Html]) -> Html:
    """A whole document. Its policy forbids scripts and every address: nothing that slips in can run or be fetched."""
    return Html(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escaped(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{_escaped(title)}</h1>\n" + "\n".join(parts) + "\n<footer>Made by Regard.</footer>\n</body>\n</html>\n"
    )


def section(heading: str, *parts: Html) -> Html:
    """A heading and what belongs to it."""
    return Html(f"<section>\n<h2>{_escaped(heading)}</h2>\n" + "\n".join(parts) + "\n</section>")


def paragraph(text: str) -> Html:
    return Html(f"<p>{_escaped(text)}</p>")


def figures(*parts: Html) -> Html:
    """Drawings side by side where there is room, else below each other."""
    return Html('<div class="figures">\n' + "\n".join(parts) + "\n</div>")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "") -> Html:
    """A table whose first column names the rows; the others are set to the right, as numbers are."""
    for row in rows:
        if len(row) != len(headers):
            raise ValueError(f"the table has {len(headers)} columns, but a row has {len(row)}: {list(row)}")
    above = f"<caption>{_escaped(caption)}</caption>" if caption else ""
    head = "".join(f'<th scope="col">{_escaped(text)}</th>' for text in headers)
    body = "\n".join(
        f'<tr><th scope="row">{_escaped(row[0])}</th>'
        + "".join(f"<td>{_escaped(text)}</td>" for text in row[1:])
        + "</tr>"
        for row in rows
    )
    return Html(
        f'<div class="wide"><table>{above}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
    )


def heat_map(
    weights: Sequence[Sequence[float]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    row_title: str,
    column_title: str,
) -> Html:
    """A matrix of weights from 0 to 1 with names on both axes: the higher, the fuller the colour.

    One hue, so that no kind of colour sight is needed. Each number can be read too: in its cell, or by pointing at it.
    """
    check_weights(weights, rows=rows, columns=columns)
    cell = CELL if len(columns) <= FEW else NARROW
    longest = max(len(name) for name in columns) * LETTER
    upright = longest <= cell - 4
    left = LINE + max(len(name) for name in rows) * LETTER + 12
    top = LINE + (LINE if upright else longest + 8) + 6
    wide, high = cell * len(columns), cell * len(rows)
    across, down = max(wide, len(column_title) * LETTER), max(high, len(row_title) * LETTER)  # room for the titles too
    drawn = [
        f'<text class="quiet" x="{left + across / 2:g}" y="14" text-anchor="middle">{_escaped(column_title)}</text>',
        f'<text class="quiet" transform="translate(14 {top + down / 2:g}) rotate(-90)" text-anchor="middle">'
        f"{_escaped(row_title)}</text>",
    ]
    for number, name in enumerate(columns):
        x = left + cell * (number + 0.5)
        turned = f'transform="translate({x + 5:g} {top - 6:g}) rotate(-90)"'
        place = f'x="{x:g}" y="{top - 8:g}" text-anchor="middle"' if upright else turned
        drawn.append(f"<text {place}>{_escaped(name)}</text>")
    for number, (name, row) in enumerate(zip(rows, weights, strict=True)):
        y = top + cell * number
        drawn.append(f'<text x="{left - 8:g}" y="{y + cell / 2 + 5:g}" text-anchor="end">{_escaped(name)}</text>')
        for i, (column, weight) in enumerate(zip(columns, row, strict=True)):
            tip = f"{row_title} {name}, {column_title} {column}: {100 * weight:.1f}%"
            drawn.append(_cell(weight, tip=tip, x=left + cell * i, y=y, cell=cell))
    drawn.append(f'<rect class="frame" x="{left:g}" y="{top:g}" width="{wide}" height="{high}"/>')
    drawn.append(_legend(left, top + high + 16))
    size = f"{left + max(across, LEGEND) + 1:g}", f"{top + max(high + 34, down):g}"
    return Html(
        f"<figure>\n<figcaption>{_escaped(title)}</figcaption>\n"
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{_escaped(title)}" '
        f'width="{size[0]}" height="{size[1]}" viewBox="0 0 {size[0]} {size[1]}">\n'
        + "\n".join(drawn)
        + "\n</svg>\n</figure>"
    )


def _cell(weight: float, *, tip: str, x: float, y: float, cell: int) -> str:
    """A square of colour, its number where there is room, and a tip for the pointer."""
    strong = " strong" if weight >= STRONG else ""
    middle = f'x="{x + cell / 2:g}" y="{y + cell / 2 + 5:g}" text-anchor="middle"'
    number = f'<text class="number{strong}" {middle}>{abs(100 * weight):.0f}</text>' if cell == CELL else ""
    square = f'<rect x="{x:g}" y="{y:g}" width="{cell}" height="{cell}" fill-opacity="{abs(weight):.3f}"/>'
    return f"<g><title>{_escaped(tip)}</title>{square}{number}</g>"


def check_weights(weights: Sequence[Sequence[float]], *, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse an empty matrix, one whose names do not fit, and a weight that is not from 0 to 1."""
    if not rows or not columns or len(weights) != len(rows) or any(len(row) != len(columns) for row in weights):
        shape = f"{len(weights)} rows of {sorted({len(row) for row in weights})}"
        raise ValueError(f"the names are for a matrix of {len(rows)} x {len(columns)}, the weights are {shape}")
    wrong = [weight for row in weights for weight in row if math.isnan(weight) or not -1e-6 <= weight <= 1 + 1e-6]
    if wrong:
        raise ValueError(f"weights go from 0 to 1, but {wrong[0]} is among them")


def _legend(x: float, y: float) -> str:
    swatches = "".join(
        f'<rect x="{x + 28 + 12 * step:g}" y="{y:g}" width="12" height="12" fill-opacity="{step / 10:g}"/>'
        for step in range(11)
    )
    return (
        f'<text class="quiet" x="{x:g}" y="{y + 11:g}">0%</text>{swatches}'
        f'<rect class="frame" x="{x + 28:g}" y="{y:g}" width="132" height="12"/>'
        f'<text class="quiet" x="{x + 164:g}" y="{y + 11:g}">100%</text>'
    )


# What XML cannot hold, even escaped: controls but tab and line ends, halves of surrogate pairs, two non-characters.
UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _escaped(text: str) -> str:
    return html.escape(UNWRITABLE.sub("\ufffd", text))
