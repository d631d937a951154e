"""Lines over an axis as a drawing: percentages that go up or down with something.

Knows SVG and the page's colours. Knows nothing of tensors, models or files.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from regard.view.page import Html

__all__ = ["line_chart"]

WIDE, HIGH, LEFT, TOP, BELOW, NAMES = 420, 260, 58, 16, 52, 190  # in pixels at full size
LETTER, LINE = 8.0, 18
DASHES = ("", "7 5", "2 4", "12 4 2 4")  # lines differ in more than colour


def line_chart(
    lines: Sequence[tuple[str, Sequence[float]]], *, at: Sequence[int], title: str, across: str, up: str
) -> Html:
    """Named lines of percentages, one value of each for every place in `at`, which goes up."""
    if not lines or len(lines) > len(DASHES):
        raise ValueError(f"a chart has 1 to {len(DASHES)} lines, not {len(lines)}")
    if not at or any(len(values) != len(at) for _, values in lines):
        raise ValueError(f"the lines have {[len(values) for _, values in lines]} values for {len(at)} places")
    wrong = [value for _, values in lines for value in values if not 0 <= value <= 100]
    if wrong:
        raise ValueError(f"percentages go from 0 to 100, but {wrong[0]} is among them")
    drawn = [_grid(at, across, up)]
    below = 0.0  # two names must not lie on each other
    for number, (name, values) in sorted(enumerate(lines), key=lambda entry: -entry[1][1][-1]):
        places = [(_x(place, at), _y(value)) for place, value in zip(at, values, strict=True)]
        below = max(places[-1][1] + 5, below + LINE)
        drawn.append(_line(name, values, places, at=at, across=across, dash=DASHES[number]))
        drawn.append(f'<text class="quiet" x="{LEFT + WIDE + 10:g}" y="{below:g}">{html.escape(name)}</text>')
    size = LEFT + WIDE + max(NAMES, *(int(len(name) * LETTER) + 20 for name, _ in lines)), TOP + HIGH + BELOW
    return Html(
        f"<figure>\n<figcaption>{html.escape(title)}</figcaption>\n"
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{html.escape(title)}" '
        f'width="{size[0]}" height="{size[1]}" viewBox="0 0 {size[0]} {size[1]}">\n'
        + "\n".join(drawn)
        + "\n</svg>\n</figure>"
    )


def _line(
    name: str,
    values: Sequence[float],
    places: Sequence[tuple[float, float]],
    *,
    at: Sequence[int],
    across: str,
    dash: str,
) -> str:
    """The line and its points, each with a tip for the pointer."""
    path = " ".join(f"{x:g},{y:g}" for x, y in places)
    points = "".join(
        f"<g><title>{html.escape(f'{name}, {across} {place}: {value:.1f}%')}</title>"
        f'<circle cx="{x:g}" cy="{y:g}" r="5" style="fill: var(--ink)"/></g>'
        for place, value, (x, y) in zip(at, values, places, strict=True)
    )
    look = "fill: none; stroke: var(--ink); stroke-width: 2.5" + (f"; stroke-dasharray: {dash}" if dash else "")
    return f'<polyline points="{path}" style="{look}"/>{points}'


def _grid(at: Sequence[int], across: str, up: str) -> str:
    parts = []
    for percent in range(0, 101, 20):
        y = _y(percent)
        parts.append(f'<path d="M{LEFT} {y:g}h{WIDE}" style="stroke: var(--rule)"/>')
        parts.append(f'<text class="quiet" x="{LEFT - 8}" y="{y + 5:g}" text-anchor="end">{percent}</text>')
    for place in at:
        parts.append(
            f'<text class="quiet" x="{_x(place, at):g}" y="{TOP + HIGH + 22}" text-anchor="middle">{place}</text>'
        )
    middle = f'x="{LEFT + WIDE / 2:g}" y="{TOP + HIGH + 44}" text-anchor="middle"'
    parts.append(f'<text class="quiet" {middle}>{html.escape(across)}</text>')
    turned = f'transform="translate(14 {TOP + HIGH / 2:g}) rotate(-90)" text-anchor="middle"'
    parts.append(f'<text class="quiet" {turned}>{html.escape(up)}</text>')
    return "\n".join(parts)


def _x(place: int, at: Sequence[int]) -> float:
    low, high = min(at), max(at)
    margin = 24  # so that the first point does not lie on the axis' numbers
    return LEFT + WIDE / 2 if low == high else LEFT + margin + (WIDE - 2 * margin) * (place - low) / (high - low)


def _y(percent: float) -> float:
    return TOP + HIGH * (1 - percent / 100)
