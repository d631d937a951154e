"""Lines over an axis: every value where it belongs, and nothing that is not text."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from regard.view.chart import HIGH, LEFT, TOP, WIDE, line_chart
from regard.view.page import Html

SVG = "{http://www.w3.org/2000/svg}"


def drawing(lines: list[tuple[str, list[float]]], at: list[int]) -> Html:
    return line_chart(lines, at=at, title="Title", across="digits", up="percent")


def svg_of(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(markup[markup.index("<svg") : markup.index("</svg>") + 6])


def points(svg: ElementTree.Element) -> list[list[tuple[float, float]]]:
    lines = []
    for line in svg.iter(f"{SVG}polyline"):
        pairs = (pair.split(",") for pair in line.get("points", "").split())
        lines.append([(float(x), float(y)) for x, y in pairs])
    return lines


def test_every_value_lies_at_its_height_and_place() -> None:
    svg = svg_of(drawing([("without", [100, 50, 0]), ("with", [75, 75, 75])], [4, 8, 16]))
    straight, falling = points(svg)  # the one that ends higher is drawn first
    assert [y for _, y in falling] == [TOP, TOP + HIGH / 2, TOP + HIGH]
    assert {y for _, y in straight} == {TOP + HIGH / 4}
    first, second, third = (x for x, _ in falling)
    assert (third - second) == pytest.approx(2 * (second - first))
    assert LEFT < first < third < LEFT + WIDE


def test_names_axes_and_tips_can_be_read() -> None:
    svg = svg_of(drawing([("without", [99.96, 50]), ("with", [100, 75])], [4, 8]))
    texts = [text.text for text in svg.iter(f"{SVG}text")]
    for expected in ("digits", "percent", "4", "8", "0", "100", "with", "without"):
        assert expected in texts
    tips = [title.text for title in svg.iter(f"{SVG}title")]
    assert tips == [
        "with, digits 4: 100.0%",
        "with, digits 8: 75.0%",
        "without, digits 4: 100.0%",
        "without, digits 8: 50.0%",
    ]


def test_names_of_equal_lines_do_not_lie_on_each_other_and_the_lines_differ() -> None:
    svg = svg_of(drawing([("one", [50.0]), ("two", [50.0])], [4]))
    heights = [float(text.get("y", "")) for text in svg.iter(f"{SVG}text") if text.text in ("one", "two")]
    assert abs(heights[0] - heights[1]) >= 14
    styles = [line.get("style") for line in svg.iter(f"{SVG}polyline")]
    assert len(set(styles)) == 2


def test_names_are_text() -> None:
    assert "<b>" not in drawing([("<b>", [50.0])], [4])
    assert "&lt;b&gt;" in drawing([("<b>", [50.0])], [4])


@pytest.mark.parametrize(
    ("lines", "at", "message"),
    [
        ([], [1], "1 to 4 lines, not 0"),
        ([("a", [1.0])] * 5, [1], "1 to 4 lines, not 5"),
        ([("a", [1.0, 2.0])], [1], r"\[2\] values for 1 places"),
        ([("a", [])], [], r"\[0\] values for 0 places"),
        ([("a", [101.0])], [1], "101.0 is among them"),
        ([("a", [float("nan")])], [1], "nan is among them"),
    ],
)
def test_what_cannot_be_drawn_is_refused(lines: list[tuple[str, list[float]]], at: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        drawing(lines, at)
