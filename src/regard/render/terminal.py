"""Heat maps and bars for the terminal, which are legible without color as well."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from regard.escaping import escape_controls

BAR = 20  # characters for 100%
EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")

SHADES = " ░▒▓█"
MAX_NUMBERED_COLUMNS = 12  # of a matrix that is printed with numbers
FAINT, FULL = (120, 130, 150), (40, 140, 255)  # visible on black and on white


def terminal_heat_map(weights: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str]) -> Text:
    """A matrix of weights from 0 to 1: each cell has a shaded block and, if there are few columns, its percentage."""
    check_weights(weights, rows=rows, columns=columns)
    rows, columns = [escape_controls(name) for name in rows], [escape_controls(name) for name in columns]
    numbered = len(columns) <= MAX_NUMBERED_COLUMNS
    side = max(cell_len(name) for name in rows)
    cell = max(cell_len(name) for name in columns) + (2 if numbered else 1)
    cell = max(cell, 7 if numbered else 3)
    text = Text(" " * side)
    for name in columns:
        text.append(" " * (cell - cell_len(name)) + name, style="bold")
    for name, row in zip(rows, weights, strict=True):
        text.append("\n" + " " * (side - cell_len(name)) + name, style="bold")
        for weight in row:
            shade = SHADES[min(int(weight * len(SHADES)), len(SHADES) - 1)]
            text.append(f"{shade * 2:>{cell - 4 if numbered else cell}}", style=_color(weight))
            if numbered:
                text.append(f"{abs(100 * weight):4.0f}")  # in the terminal's own color, legible on any background
    return text


def check_weights(weights: Sequence[Sequence[float]], *, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Raise ValueError for an empty matrix, names of another shape, and weights outside 0 to 1."""
    if not rows or not columns or len(weights) != len(rows) or any(len(row) != len(columns) for row in weights):
        shape = f"{len(weights)} rows of {sorted({len(row) for row in weights})}"
        raise ValueError(f"the names are for a matrix of {len(rows)} x {len(columns)}, the weights are {shape}")
    wrong = [weight for row in weights for weight in row if math.isnan(weight) or not -1e-6 <= weight <= 1 + 1e-6]
    if wrong:
        raise ValueError(f"weights go from 0 to 1, but {wrong[0]} is among them")


def _color(weight: float) -> str:
    red, green, blue = (round(low + weight * (high - low)) for low, high in zip(FAINT, FULL, strict=True))
    return f"rgb({red},{green},{blue})"


def padded(names: Iterable[str]) -> list[str]:
    """A column of names without control characters, all as wide as the widest."""
    escaped = [escape_controls(name) for name in names]
    width = max(map(cell_len, escaped), default=0)
    return [name + " " * (width - cell_len(name)) for name in escaped]


def probability_table(rows: Sequence[tuple[str, float]]) -> Iterator[str]:
    """Lines with a name, its probability and a bar of that length."""
    for name, (_, probability) in zip(padded(name for name, _ in rows), rows, strict=True):
        yield f"  {name}  {probability:8.3%}  {text_bar(probability)}".rstrip()


def text_bar(fraction: float) -> str:
    """A bar for a number from 0 to 1."""
    whole, eighth = divmod(round(fraction * BAR * 8), 8)
    return "█" * whole + EIGHTHS[eighth]


def token_columns(tokens: Sequence[str], ids: Sequence[int]) -> Iterator[str]:
    """Tokens above their ids, wrapped at 100 columns."""
    above = below = "   "
    for token, number in zip(map(escape_controls, tokens), map(str, ids), strict=True):
        width = max(cell_len(token), len(number)) + 2
        if cell_len(above) + width > 103:
            yield from (above.rstrip(), below.rstrip())
            above = below = "   "
        above, below = above + set_cell_size(token, width), below + number.ljust(width)
    yield from (above.rstrip(), below.rstrip())
