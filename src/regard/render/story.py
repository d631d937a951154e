"""Stories: texts, tables, heat maps, charts and diagrams below each other, for the page and the terminal.

Story(title="Title", blocks=[Section(heading="Heading", blocks=[Paragraph(text="A text.")])]).to_html()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill, wrap
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeAlias

from pydantic import BaseModel, Field, field_validator, model_validator
from rich.cells import cell_len
from rich.text import Text

from regard.escaping import escape_controls
from regard.render import bundle
from regard.render.result import Result
from regard.render.terminal import SHADES, check_weights, terminal_heat_map, text_bar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LINES = 4  # of a chart that differ in more than color
WIDTH = 96  # characters of a line in the terminal
NARROWEST = 24  # characters of a column that is wrapped


class Paragraph(BaseModel):
    kind: Literal["text"] = "text"
    text: str


class StoryTable(BaseModel):
    """A table whose first column names the rows; the other columns are right-aligned, except `text_columns`."""

    kind: Literal["table"] = "table"
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    text_columns: Sequence[int] = ()  # columns of text, counted from 0

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
        widths = [max(map(cell_len, column)) for column in zip(self.headers, *self.rows, strict=True)]
        left = {0, *self.text_columns}
        last = len(widths) - 1
        if last in self.text_columns:  # long texts are wrapped
            widths[last] = max(NARROWEST, min(widths[last], WIDTH - sum(widths[:-1]) - 2 * len(widths)))
        for row in (self.headers, *self.rows):
            wrapped = wrap(row[last], widths[last]) if last in self.text_columns else [row[last]]
            cells = [
                _pad(text, width, left=column in left)
                for column, (text, width) in enumerate(zip([*row[:-1], (wrapped or [""])[0]], widths, strict=True))
            ]
            yield f"  {'  '.join(cells)}".rstrip()
            for line in wrapped[1:]:
                yield " " * (2 * len(widths) + sum(widths[:-1])) + line


def _pad(text: str, width: int, *, left: bool) -> str:
    space = " " * (width - cell_len(text))
    return text + space if left else space + text


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


class ChartBar(BaseModel):
    """A name and a value; `text` is the value as it is written."""

    name: str
    value: float
    text: str


class BarChart(BaseModel):
    """Horizontal bars below each other; the longest is the largest value."""

    kind: Literal["bars"] = "bars"
    title: str
    bars: list[ChartBar] = Field(min_length=1)

    @classmethod
    def of_probabilities(cls, title: str, rows: Sequence[tuple[str, float]]) -> BarChart:
        """Bars of names with their probabilities, written as percentages."""
        return cls(title=title, bars=[ChartBar(name=name, value=value, text=f"{value:.1%}") for name, value in rows])

    def lines(self) -> Iterator[str]:
        """The bars for the terminal."""
        names = [escape_controls(bar.name) for bar in self.bars]
        widths = max(map(cell_len, names)), max(len(bar.text) for bar in self.bars)
        longest = max(abs(bar.value) for bar in self.bars) or 1
        for name, bar in zip(names, self.bars, strict=True):
            line = (
                f"  {_pad(name, widths[0], left=True)}  {bar.text:>{widths[1]}}  {text_bar(abs(bar.value) / longest)}"
            )
            yield line.rstrip()


class NumberMatrix(BaseModel):
    """A matrix of any numbers with names on both axes: vectors, scores, one-hot rows. Colored by sign and size."""

    kind: Literal["numbers"] = "numbers"
    title: str
    values: list[list[float]]
    rows: Sequence[str]
    columns: Sequence[str]
    digits: int = Field(default=2, ge=0, le=6, description="After the decimal point.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.values) != len(self.rows) or any(len(row) != len(self.columns) for row in self.values):
            shape = f"{len(self.values)} rows of {sorted({len(row) for row in self.values})}"
            raise ValueError(f"the names are for {len(self.rows)} x {len(self.columns)} numbers, there are {shape}")
        return self

    def lines(self) -> Iterator[str]:
        """The matrix for the terminal."""
        cells = [[f"{value:z.{self.digits}f}" for value in row] for row in self.values]
        rows = [(name, *row) for name, row in zip(self.rows, cells, strict=True)]
        return StoryTable(headers=("", *self.columns), rows=rows, caption=self.title).lines()


class DiagramBox(BaseModel):
    """A box at a position of the grid: column 0 is the first, row 0 the top. `column` may be 0.5."""

    key: str
    text: str
    column: float
    row: float
    width: float = Field(default=1, gt=0, description="In columns.")
    strong: bool = False


class DiagramArrow(BaseModel):
    """An arrow between two boxes, by their keys."""

    start: str
    end: str
    label: str = ""


class Diagram(BaseModel):
    """Boxes on a grid with arrows between them. The terminal prints the rows of boxes and lists the arrows."""

    kind: Literal["diagram"] = "diagram"
    title: str
    boxes: list[DiagramBox] = Field(min_length=1)
    arrows: list[DiagramArrow] = []

    @model_validator(mode="after")
    def _check(self) -> Self:
        keys = {box.key for box in self.boxes}
        for arrow in self.arrows:
            if not {arrow.start, arrow.end} <= keys:
                raise ValueError(f"the arrow {arrow.start} -> {arrow.end} names a box that is not there")
        return self

    def lines(self) -> Iterator[str]:
        """The diagram for the terminal."""
        for row in sorted({box.row for box in self.boxes}):
            boxes = sorted((box for box in self.boxes if box.row == row), key=lambda box: box.column)
            yield "  " + "  ".join(f"[ {' '.join(box.text.split())} ]" for box in boxes)
        names = {box.key: " ".join(box.text.split()) for box in self.boxes}
        for arrow in self.arrows:
            label = f" ({arrow.label})" if arrow.label else ""
            yield f"    {names[arrow.start]} -> {names[arrow.end]}{label}"


class PatchSequence(BaseModel):
    """An image cut into patches, in the order in which a Vision Transformer reads them, after [CLS] at position 0.

    `patches` are data URIs, row by row; `brightness` from 0 to 1 shades them in the terminal.
    """

    kind: Literal["patches"] = "patches"
    title: str
    columns: int = Field(ge=1, description="Patches in a row of the image.")
    patches: list[str] = Field(min_length=1)
    brightness: list[float]

    @classmethod
    def of_image(cls, title: str, pixels: NDArray[np.uint8], grid: tuple[int, int]) -> PatchSequence:
        """`pixels` are (height, width), or (height, width, 3); `grid` is the number of rows and columns of patches."""
        import numpy as np

        from regard.render.page_arrays import data_uri

        rows = np.split(pixels, grid[0], axis=0)
        patches = [patch for row in rows for patch in np.split(row, grid[1], axis=1)]
        return cls(
            title=title,
            columns=grid[1],
            patches=[data_uri(np.ascontiguousarray(patch)) for patch in patches],
            brightness=[float(patch.mean()) / 255 for patch in patches],
        )

    def lines(self) -> Iterator[str]:
        """The positions in the image for the terminal, each with a shade."""
        largest = max(self.brightness) or 1.0
        yield "  [CLS] is position 0"
        for start in range(0, len(self.patches), self.columns):
            cells = enumerate(self.brightness[start : start + self.columns], start + 1)
            shades = ((position, SHADES[round(value / largest * (len(SHADES) - 1))]) for position, value in cells)
            yield "  " + " ".join(f"{position:3}{shade * 2}" for position, shade in shades).rstrip()


class FigureRow(BaseModel):
    """Drawings side by side, or below each other on a narrow screen; the terminal may leave them out."""

    kind: Literal["figures"] = "figures"
    blocks: Sequence[HeatMap | NumberMatrix | BarChart | Diagram]
    page_only: bool = Field(default=False, exclude=True)


class Section(BaseModel):
    """A heading with its blocks."""

    kind: Literal["section"] = "section"
    heading: str
    blocks: list[StoryBlock]


StoryBlock: TypeAlias = (
    Paragraph
    | StoryTable
    | HeatMap
    | LineChart
    | BarChart
    | NumberMatrix
    | Diagram
    | PatchSequence
    | FigureRow
    | Section
)
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
        return Text("\n\n").join(rich_blocks(self.blocks))


def rich_blocks(blocks: Sequence[StoryBlock]) -> Iterator[Text]:
    """Each block for the terminal, in color."""
    for block in blocks:
        match block:
            case Paragraph():
                yield Text(fill(block.text, WIDTH))
            case StoryTable() | NumberMatrix():
                yield Text("\n".join(block.lines()))
            case BarChart() | Diagram() | PatchSequence():
                yield Text("\n".join([f"{block.title}:", *block.lines()]))
            case HeatMap():
                names = f"{block.title}; columns: {block.column_title}, rows: {block.row_title}\n\n"
                indented = [f"  {name}" for name in block.rows]
                yield Text(names) + terminal_heat_map(block.weights, indented, block.columns)
            case Section():
                yield Text(block.heading, style="bold")
                yield from rich_blocks(block.blocks)
            case FigureRow() if not block.page_only:
                yield from rich_blocks(block.blocks)
