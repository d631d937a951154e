"""Story pages: texts, tables, maps and charts below each other, as data that the page's script draws.

page("Title", [section("Heading", paragraph("A text."), table(headers, rows))], cli="regard ...", python="...")
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from typing_extensions import TypedDict

from regard.render import bundle

LINES = 4  # of a chart that differ in more than color


class TextBlock(TypedDict):
    kind: Literal["text"]
    text: str


class SectionBlock(TypedDict):
    kind: Literal["section"]
    heading: str
    blocks: list[Block]


class FiguresBlock(TypedDict):
    """Drawings side by side, or below each other on a narrow screen."""

    kind: Literal["figures"]
    blocks: list[Block]


class TableBlock(TypedDict):
    """The first column names the rows; the other columns are right-aligned."""

    kind: Literal["table"]
    headers: list[str]
    rows: list[list[str]]
    caption: str


class HeatMapBlock(TypedDict):
    """A matrix of weights from 0 to 1 with names on both axes."""

    kind: Literal["map"]
    weights: list[list[float]]
    rows: list[str]
    columns: list[str]
    title: str
    row_title: str
    column_title: str


class ChartLine(TypedDict):
    name: str
    values: list[float]


class ChartBlock(TypedDict):
    """Lines of percentages, one value for every point in `at`."""

    kind: Literal["chart"]
    lines: list[ChartLine]
    at: list[int]
    title: str
    across: str
    up: str


Block = TextBlock | SectionBlock | FiguresBlock | TableBlock | HeatMapBlock | ChartBlock


class StoryView(TypedDict):
    title: str
    blocks: list[Block]


def page(title: str, blocks: Sequence[Block], *, cli: str, python: str) -> str:
    """A complete page that needs no network; `cli` and `python` are the lines that reproduce it."""
    return bundle.page({"view": "story", "title": title, "blocks": blocks, "cli": cli, "python": python}, title=title)


def section(heading: str, *blocks: Block) -> Block:
    """A heading with its blocks."""
    return {"kind": "section", "heading": heading, "blocks": list(blocks)}


def paragraph(text: str) -> Block:
    return {"kind": "text", "text": text}


def figures(*blocks: Block) -> Block:
    """Drawings side by side, or below each other on a narrow screen."""
    return {"kind": "figures", "blocks": list(blocks)}


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "") -> Block:
    """A table whose first column names the rows; the other columns are right-aligned."""
    for row in rows:
        if len(row) != len(headers):
            raise ValueError(f"the table has {len(headers)} columns, but a row has {len(row)}: {list(row)}")
    return {"kind": "table", "headers": list(headers), "rows": [list(row) for row in rows], "caption": caption}


def heat_map(
    weights: Sequence[Sequence[float]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    row_title: str,
    column_title: str,
) -> Block:
    """A matrix of weights from 0 to 1 with names on both axes."""
    check_weights(weights, rows=rows, columns=columns)
    return {
        "kind": "map",
        "weights": [[min(max(weight, 0.0), 1.0) for weight in row] for row in weights],
        "rows": list(rows),
        "columns": list(columns),
        "title": title,
        "row_title": row_title,
        "column_title": column_title,
    }


def line_chart(
    lines: Sequence[tuple[str, Sequence[float]]], *, at: Sequence[int], title: str, across: str, up: str
) -> Block:
    """Named lines of percentages, one value for every point in `at`, which increases."""
    if not lines or len(lines) > LINES:
        raise ValueError(f"a chart has 1 to {LINES} lines, not {len(lines)}")
    if not at or any(len(values) != len(at) for _, values in lines):
        raise ValueError(f"the lines have {[len(values) for _, values in lines]} values for {len(at)} points")
    wrong = [value for _, values in lines for value in values if not 0 <= value <= 100]
    if wrong:
        raise ValueError(f"percentages go from 0 to 100, but {wrong[0]} is among them")
    drawn: list[ChartLine] = [{"name": name, "values": list(values)} for name, values in lines]
    return {"kind": "chart", "lines": drawn, "at": list(at), "title": title, "across": across, "up": up}


def check_weights(weights: Sequence[Sequence[float]], *, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Raise ValueError for an empty matrix, names of another shape, and weights outside 0 to 1."""
    if not rows or not columns or len(weights) != len(rows) or any(len(row) != len(columns) for row in weights):
        shape = f"{len(weights)} rows of {sorted({len(row) for row in weights})}"
        raise ValueError(f"the names are for a matrix of {len(rows)} x {len(columns)}, the weights are {shape}")
    wrong = [weight for row in weights for weight in row if math.isnan(weight) or not -1e-6 <= weight <= 1 + 1e-6]
    if wrong:
        raise ValueError(f"weights go from 0 to 1, but {wrong[0]} is among them")
