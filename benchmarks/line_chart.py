"""Line charts as SVG: few points, logarithmic or linear axes, a legend. No library is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 560, 320
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50  # margins
COLORS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df")
DASHES = ("", "6 3", "2 3", "8 3 2 3")
Points = Sequence[tuple[float, float]]


def line_chart(title: str, x_label: str, y_label: str, series: Mapping[str, Points], *, log_y: bool = False) -> str:
    """An SVG document; x is logarithmic, y starts at 0 or is logarithmic. Each point shows its values on hover."""
    points = [point for line in series.values() for point in line]
    x_values = sorted({x for x, _ in points})
    x_low, x_high = math.log(x_values[0]), math.log(x_values[-1])
    highest, lowest = max(y for _, y in points), min(y for _, y in points)
    ticks = log_ticks(lowest, highest) if log_y else linear_ticks(highest)

    def x_of(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log(value) - x_low) / ((x_high - x_low) or 1)

    def y_of(value: float) -> float:
        low, high = (math.log(ticks[0]), math.log(ticks[-1])) if log_y else (0.0, ticks[-1])
        share = ((math.log(value) if log_y else value) - low) / ((high - low) or 1)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for value in ticks:
        y = y_of(value)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#d8dee4"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{format_number(value)}</text>')
    for value in x_values:
        x = x_of(value)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{format_number(value)}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(
        f'<text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">{escape(y_label)}</text>'
    )
    for number, (name, line) in enumerate(series.items()):
        color, dash = COLORS[number % len(COLORS)], DASHES[number % len(DASHES)]
        path = "L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in line)
        parts.append(f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>')
        for x, y in line:
            label = f"{name}: {format_number(x)}, {format_number(y)}"
            parts.append(
                f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3" fill="{color}"><title>{escape(label)}</title>'
                "</circle>"
            )
        left = WIDTH - RIGHT - 90 * (len(series) - number)
        parts.append(f'<path d="M{left} 32h22" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>')
        parts.append(f'<text x="{left + 27}" y="36">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def linear_ticks(highest: float) -> list[float]:
    """Round numbers from 0 to at least `highest`, about five of them."""
    step = 10 ** math.floor(math.log10(highest / 4))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if highest / (step * factor) <= 5)
    return [step * number for number in range(math.ceil(highest / step) + 1)]


def log_ticks(lowest: float, highest: float) -> list[float]:
    """Powers of ten around the values."""
    low, high = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    return [10.0**power for power in range(low, max(high, low + 1) + 1)]


def format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
