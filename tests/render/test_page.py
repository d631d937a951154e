"""The parts of a story hold what they are given, in the order it is given, and refuse what does not fit."""

from __future__ import annotations

import pytest

from regard.render.page import Block, figures, heat_map, line_chart, page, paragraph, section, table
from tests.render.page_data import blocks_of, payload_of

HOSTILE = "</script><script>alert('1')</script><!--\"&\x00\ud800"


def drawing(weights: list[list[float]], rows: list[str], columns: list[str]) -> Block:
    return heat_map(weights, rows=rows, columns=columns, title="Title", row_title="written", column_title="read")


def chart(lines: list[tuple[str, list[float]]], at: list[int]) -> Block:
    return line_chart(lines, at=at, title="Title", across="digits", up="percent")


@pytest.mark.usefixtures("page_built")
def test_a_page_holds_its_parts_in_their_order() -> None:
    parts = [
        paragraph("first"),
        section("Heading", figures(drawing([[0.25, 0.75]], ["x"], ["a", "b"])), chart([("one", [1, 2])], [4, 8])),
        table(("a", "b"), [("x", "1")], caption="numbers"),
    ]
    made = page("A title", parts, cli="regard tour", python="import regard")
    payload = payload_of(made)
    assert [block["kind"] for block in payload["blocks"]] == ["text", "section", "table"]
    assert (payload["view"], payload["title"], payload["cli"]) == ("story", "A title", "regard tour")
    (drawn,), (lines,), (numbers,) = (blocks_of(made, kind) for kind in ("map", "chart", "table"))
    assert drawn["weights"] == [[0.25, 0.75]] and (drawn["rows"], drawn["columns"]) == (["x"], ["a", "b"])
    assert lines["lines"] == [{"name": "one", "values": [1, 2]}] and lines["at"] == [4, 8]
    assert (numbers["headers"], numbers["rows"], numbers["caption"]) == (["a", "b"], [["x", "1"]], "numbers")
    assert "<title>A title</title>" in made


@pytest.mark.usefixtures("page_built")
def test_nothing_from_the_user_becomes_markup() -> None:
    named = heat_map([[1.0]], rows=[HOSTILE], columns=[HOSTILE], title=HOSTILE, row_title=HOSTILE, column_title=HOSTILE)
    parts = [section(HOSTILE, paragraph(HOSTILE), figures(named), table((HOSTILE,), [(HOSTILE,)], caption=HOSTILE))]
    hostile, harmless = (page(text, parts, cli=text, python=text) for text in (HOSTILE, "zebra"))
    hostile.encode("utf-8")
    assert hostile.count("<script") == harmless.count("<script") == 2
    assert payload_of(hostile)["blocks"] == payload_of(harmless)["blocks"]
    assert payload_of(hostile)["blocks"][0]["heading"] == HOSTILE


def test_a_weight_beside_the_ends_by_rounding_is_put_on_them() -> None:
    assert drawing([[1 + 5e-7, -5e-7]], ["x"], ["a", "b"])["weights"] == [[1.0, 0.0]]


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
def test_weights_that_do_not_fit_are_refused(weights: list[list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        drawing(weights, ["x", "y"], ["a", "b"])


def test_a_ragged_table_is_refused() -> None:
    with pytest.raises(ValueError, match="2 columns, but a row has 1"):
        table(("a", "b"), [("x",)])


@pytest.mark.parametrize(
    ("lines", "at", "message"),
    [
        ([], [1], "1 to 4 lines, not 0"),
        ([("a", [1.0])] * 5, [1], "1 to 4 lines, not 5"),
        ([("a", [1.0, 2.0])], [1], r"\[2\] values for 1 points"),
        ([("a", [])], [], r"\[0\] values for 0 points"),
        ([("a", [101.0])], [1], "101.0 is among them"),
        ([("a", [float("nan")])], [1], "nan is among them"),
    ],
)
def test_what_cannot_be_drawn_is_refused(lines: list[tuple[str, list[float]]], at: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chart(lines, at)
