"""Stories: texts, tables, heat maps and charts below each other, for the page and the terminal.

Story(title="Title", blocks=[Section(heading="Heading", blocks=[Paragraph(text="A text.")])]).to_html()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import ClassVar, Literal, Self, TypeAlias

from pydantic import BaseModel, Field, field_validator, model_validator
from rich.text import Text

from regard.render import bundle
from regard.render.result import Result
from regard.render.terminal import check_weights, terminal_heat_map

LINES = 4  # of a chart that differ in more than color
WIDTH = 96  # characters of a line in the terminal


class Paragraph(BaseModel):
    kind: Literal["text"] = "text"
    text: str


class StoryTable(BaseModel):
    """A table whose first column names the rows; the other columns are right-aligned."""

    kind: Literal["table"] = "table"
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for row in self.rows:
            if len(row) != len(self.headers):
                raise ValueError(f"the table has {len(self.headers)} columns, but a row has {len(row)}: {list(row)}")
        return self

    def lines(self) -> Iterator[str]:
        """The table for the terminal."""
        if self.caption:
            yield f"{self.caption}:"
        widths = [max(map(len, column)) for column in zip(self.headers, *self.rows, strict=True)]
        for first, *others in (self.headers, *self.rows):
            cells = "".join(f"  {text:>{width}}" for text, width in zip(others, widths[1:], strict=True))
            yield f"  {first:<{widths[0]}}{cells}".rstrip()


class HeatMap(BaseModel):
    """A matrix of weights from 0 to 1 with names on both axes."""

    kind: Literal["map"] = "map"
    weights: list[list[float]]
    rows: Sequence[str]
    columns: Sequence[str]
    title: str
    row_title: str
    column_title: str

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_weights(self.weights, rows=self.rows, columns=self.columns)
        self.weights = [[min(max(weight, 0.0), 1.0) for weight in row] for row in self.weights]
        return self


class ChartLine(BaseModel):
    name: str
    values: list[float] = Field(description="Percentages.")

    @field_validator("values")
    @classmethod
    def _check(cls, values: list[float]) -> list[float]:
        wrong = [value for value in values if not 0 <= value <= 100]
        if wrong:
            raise ValueError(f"percentages go from 0 to 100, but {wrong[0]} is among them")
        return values


class LineChart(BaseModel):
    """Named lines of percentages, one value for every point in `at`, which increases. Not shown in the terminal."""

    kind: Literal["chart"] = "chart"
    lines: list[ChartLine] = Field(min_length=1, max_length=LINES)
    at: list[int] = Field(min_length=1)
    title: str
    across: str
    up: str

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(len(line.values) != len(self.at) for line in self.lines):
            lengths = [len(line.values) for line in self.lines]
            raise ValueError(f"the lines have {lengths} values for {len(self.at)} points")
        return self


class FigureRow(BaseModel):
    """Drawings side by side, or below each other on a narrow screen; the terminal may leave them out."""

    kind: Literal["figures"] = "figures"
    blocks: list[HeatMap]
    page_only: bool = Field(default=False, exclude=True)


class Section(BaseModel):
    """A heading with its blocks."""

    kind: Literal["section"] = "section"
    heading: str
    blocks: list[StoryBlock]


StoryBlock: TypeAlias = Paragraph | StoryTable | HeatMap | LineChart | FigureRow | Section
Section.model_rebuild()


class Story(Result):
    page_view: ClassVar[str | None] = "story"

    title: str
    blocks: list[StoryBlock]

    def to_html(self) -> str:
        return bundle.page(self.page_data(), title=self.title)

    def to_text(self) -> str:
        return self.to_rich().plain

    def to_rich(self) -> Text:
        """The story for the terminal, in color."""
        return Text("\n\n").join(_rich(self.blocks))


def _rich(blocks: Sequence[StoryBlock]) -> Iterator[Text]:
    for block in blocks:
        match block:
            case Paragraph():
                yield Text(fill(block.text, WIDTH))
            case StoryTable():
                yield Text("\n".join(block.lines()))
            case HeatMap():
                names = f"{block.title}; columns: {block.column_title}, rows: {block.row_title}\n\n"
                indented = [f"  {name}" for name in block.rows]
                yield Text(names) + terminal_heat_map(block.weights, indented, block.columns)
            case Section():
                yield Text(block.heading, style="bold")
                yield from _rich(block.blocks)
            case FigureRow() if not block.page_only:
                yield from _rich(block.blocks)
