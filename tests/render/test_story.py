"""Stories: the order of their blocks on the page and the terminal, and errors for invalid data."""

from __future__ import annotations

import pytest

from regard.render.story import (
    ChartLine,
    FigureRow,
    HeatMap,
    LineChart,
    Paragraph,
    Section,
    Story,
    StoryBlock,
    StoryTable,
)
from tests.render.page_data import blocks_of, payload_of

HOSTILE = "</script><script>alert('1')</script><!--\"&\x00\ud800"


def drawing(weights: list[list[float]], rows: list[str], columns: list[str]) -> HeatMap:
    return HeatMap(weights=weights, rows=rows, columns=columns, title="Title", row_title="written", column_title="read")


def chart(lines: list[tuple[str, list[float]]], at: list[int]) -> LineChart:
    named = [ChartLine(name=name, values=values) for name, values in lines]
    return LineChart(lines=named, at=at, title="Title", across="digits", up="percent")


BLOCKS: list[StoryBlock] = [
    Paragraph(text="first"),
    Section(
        heading="Heading",
        blocks=[FigureRow(blocks=[drawing([[0.25, 0.75]], ["x"], ["a", "b"])]), chart([("one", [1, 2])], [4, 8])],
    ),
    StoryTable(headers=("a", "b"), rows=[("x", "1")], caption="numbers"),
]


@pytest.mark.usefixtures("page_built")
def test_a_page_has_its_blocks_in_order() -> None:
    story = Story(title="A title", blocks=BLOCKS)
    story.with_reproduction("regard tour", "import regard")
    made = story.to_html()
    payload = payload_of(made)
    assert [block["kind"] for block in payload["blocks"]] == ["text", "section", "table"]
    assert (payload["view"], payload["title"], payload["cli"]) == ("story", "A title", "regard tour")
    (drawn,), (lines,), (numbers,) = (blocks_of(made, kind) for kind in ("map", "chart", "table"))
    assert drawn["weights"] == [[0.25, 0.75]] and (drawn["rows"], drawn["columns"]) == (["x"], ["a", "b"])
    assert lines["lines"] == [{"name": "one", "values": [1, 2]}] and lines["at"] == [4, 8]
    assert (numbers["headers"], numbers["rows"], numbers["caption"]) == (["a", "b"], [["x", "1"]], "numbers")
    assert "<title>A title</title>" in made


def test_the_terminal_shows_texts_tables_and_maps() -> None:
    text = Story(title="A title", blocks=BLOCKS).to_text()
    assert text.split("\n\n") == [
        "first",
        "Heading",
        "Title; columns: read, rows: written",
        "         a      b\n  x ░░  25 ▓▓  75",
        "numbers:\n  a  b\n  x  1",
    ]
    assert (
        "columns"
        not in Story(title="", blocks=[FigureRow(blocks=[drawing([[1]], ["x"], ["a"])], page_only=True)]).to_text()
    )


@pytest.mark.usefixtures("page_built")
def test_text_from_the_user_is_not_markup() -> None:
    names = dict.fromkeys(("title", "row_title", "column_title"), HOSTILE)
    figure = FigureRow(blocks=[HeatMap(weights=[[1.0]], rows=[HOSTILE], columns=[HOSTILE], **names)])
    table = StoryTable(headers=(HOSTILE,), rows=[(HOSTILE,)], caption=HOSTILE)
    section = Section(heading=HOSTILE, blocks=[Paragraph(text=HOSTILE), figure, table])
    pages = []
    for text in (HOSTILE, "zebra"):
        story = Story(title=text, blocks=[section])
        story.with_reproduction(text, text)
        pages.append(story.to_html())
    hostile, harmless = pages
    hostile.encode("utf-8")
    assert hostile.count("<script") == harmless.count("<script") == 2
    assert payload_of(hostile)["blocks"] == payload_of(harmless)["blocks"]
    assert payload_of(hostile)["blocks"][0]["heading"] == HOSTILE


def test_rounding_errors_beyond_0_and_1_are_clipped() -> None:
    assert drawing([[1 + 5e-7, -5e-7]], ["x"], ["a", "b"]).weights == [[1.0, 0.0]]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[0.5, 0.5]], "2 x 2"),
        ([[0.5, 0.5], [1.0]], "2 x 2"),
        ([[0.5, 0.5], [0.5, 1.5]], "1.5"),
        ([[0.5, 0.5], [0.5, -0.5]], "-0.5"),
        ([[0.5, 0.5], [0.5, float("nan")]], "nan"),
    ],
)
def test_weights_of_the_wrong_shape_raise(weights: list[list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        drawing(weights, ["x", "y"], ["a", "b"])


def test_a_ragged_table_raises() -> None:
    with pytest.raises(ValueError, match="2 columns, but a row has 1"):
        StoryTable(headers=("a", "b"), rows=[("x",)])


@pytest.mark.parametrize(
    ("lines", "at", "message"),
    [
        ([], [1], "at least 1 item"),
        ([("a", [1.0])] * 5, [1], "at most 4 items"),
        ([("a", [1.0, 2.0])], [1], r"\[2\] values for 1 points"),
        ([("a", [])], [], "at least 1 item"),
        ([("a", [101.0])], [1], "101.0 is among them"),
        ([("a", [float("nan")])], [1], "nan is among them"),
    ],
)
def test_invalid_charts_raise(lines: list[tuple[str, list[float]]], at: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chart(lines, at)
