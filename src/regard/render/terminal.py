"""Heat maps and bars for the terminal, which are legible without color as well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from regard.escaping import escape_controls
from regard.render.page import check_weights

BAR = 20  # characters for 100%
EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")

SHADES = " ░▒▓█"
FAINT, FULL = (120, 130, 150), (40, 140, 255)  # visible on black and on white


def terminal_heat_map(weights: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str]) -> Text:
    """A matrix of weights from 0 to 1: each cell has a shaded block and its percentage."""
    check_weights(weights, rows=rows, columns=columns)
    rows, columns = [escape_controls(name) for name in rows], [escape_controls(name) for name in columns]
    side = max(cell_len(name) for name in rows)
    cell = max(7, *(cell_len(name) + 2 for name in columns))
    text = Text(" " * side)
    for name in columns:
        text.append(" " * (cell - cell_len(name)) + name, style="bold")
    for name, row in zip(rows, weights, strict=True):
        text.append("\n" + " " * (side - cell_len(name)) + name, style="bold")
        for weight in row:
            text.append(f"{shade(weight) * 2:>{cell - 4}}", style=_color(weight))
            text.append(f"{abs(100 * weight):4.0f}")  # in the terminal's own color, legible on any background
    return text


def shade(weight: float) -> str:
    return SHADES[min(int(weight * len(SHADES)), len(SHADES) - 1)]


def _color(weight: float) -> str:
    red, green, blue = (round(low + weight * (high - low)) for low, high in zip(FAINT, FULL, strict=True))
    return f"rgb({red},{green},{blue})"


def probability_table(rows: Sequence[tuple[str, float]]) -> Iterator[str]:
    """Lines with a name, its probability and a bar of that length."""
    escaped = [(escape_controls(name), probability) for name, probability in rows]
    width = max(cell_len(name) for name, _ in escaped)
    for name, probability in escaped:
        whole, eighth = divmod(round(probability * BAR * 8), 8)
        space = " " * (width - cell_len(name))
        yield f"  {name}{space}  {probability:8.3%}  {'█' * whole}{EIGHTHS[eighth]}".rstrip()
