"""Pages stand alone, show what they are given and let nothing through that is not text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from regard.view.page import STRONG, STYLE, Html, figures, heat_map, page, paragraph, section, table

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert('1')</script>\"&\x00\ud800"


def drawing(weights: list[list[float]], rows: list[str], columns: list[str]) -> Html:
    return heat_map(weights, rows=rows, columns=columns, title="Title", row_title="written", column_title="read")


def svg_of(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(markup[markup.index("<svg") : markup.index("</svg>") + 6])


def texts(svg: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in svg.iter(f"{SVG}text")]


class Tags(HTMLParser):
    def __init__(self, markup: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: dict[str, list[str]] = {}
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value or "")


def test_a_heat_map_names_both_axes_and_shows_every_number() -> None:
    svg = svg_of(drawing([[0.0, 0.25, 0.75], [0.6, 0.3, 0.1]], ["x", "y"], ["a", "b", "c"]))
    assert texts(svg)[:7] == ["read", "written", "a", "b", "c", "x", "0"]
    assert [t for t in texts(svg) if t.isdigit()] == ["0", "25", "75", "60", "30", "10"]
    cells = [group for group in svg.iter(f"{SVG}g")]
    assert [cell.find(f"{SVG}title").text for cell in cells][2] == "written x, read c: 75.0%"  # type: ignore[union-attr]
    assert [cell.find(f"{SVG}rect").get("fill-opacity") for cell in cells] == [  # type: ignore[union-attr]
        "0.000",
        "0.250",
        "0.750",
        "0.600",
        "0.300",
        "0.100",
    ]


def test_cells_lie_in_reading_order_and_inside_the_drawing() -> None:
    svg = svg_of(drawing([[0.5, 0.5], [1.0, 0.0]], ["x", "y"], ["a", "b"]))
    squares = [group.find(f"{SVG}rect") for group in svg.iter(f"{SVG}g")]
    places = [(float(s.get("y", "")), float(s.get("x", ""))) for s in squares if s is not None]
    assert places == sorted(places)
    assert len(set(places)) == 4
    *_, width, height = (float(number) for number in svg.get("viewBox", "").split())
    for rect in svg.iter(f"{SVG}rect"):
        assert float(rect.get("x", "")) + float(rect.get("width", "")) <= width
        assert float(rect.get("y", "")) + float(rect.get("height", "")) <= height


def test_long_names_are_turned_and_many_columns_carry_no_numbers() -> None:
    words = svg_of(drawing([[0.5, 0.5]], ["x"], ["incomprehensibility", "b"]))
    assert next(t for t in words.iter(f"{SVG}text") if t.text == "incomprehensibility").get("transform")
    many = svg_of(drawing([[0.05] * 20], ["x"], [f"n{i}" for i in range(20)]))
    assert "5" not in texts(many)
    assert len(list(many.iter(f"{SVG}title"))) == 20


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


def whole_page(text: str) -> Html:
    named = heat_map([[1.0]], rows=[text], columns=[text], title=text, row_title=text, column_title=text)
    parts = [section(text, paragraph(text), figures(named), table((text, text), [(text, text)], caption=text))]
    return page(text, parts)


def test_nothing_from_the_user_becomes_markup() -> None:
    harmless, hostile = Tags(whole_page("zebra")), Tags(whole_page(HOSTILE))
    assert hostile.names == harmless.names
    assert hostile.attributes.keys() == harmless.attributes.keys()
    assert "script" not in hostile.names
    assert whole_page(HOSTILE).count("&lt;script&gt;") == whole_page("zebra").count("zebra")


def test_the_drawing_is_well_formed_whatever_the_names_hold() -> None:
    svg = svg_of(whole_page(HOSTILE))
    assert texts(svg)[0] == "<script>alert('1')</script>\"&\ufffd\ufffd"
    whole_page(HOSTILE).encode("utf-8")


def test_a_page_stands_alone() -> None:
    markup = whole_page("zebra")
    tags = Tags(markup)
    assert set(re.findall(r"\w+://[^\"'\s)]*", markup)) == {"http://www.w3.org/2000/svg"}
    assert not {"script", "link", "img", "iframe", "object", "image", "use"} & set(tags.names)
    assert not {"src", "href", "xlink:href"} & tags.attributes.keys()
    assert not [name for name in tags.attributes if name.startswith("on")]
    assert "@import" not in STYLE and "url(" not in STYLE
    assert "default-src 'none'; style-src 'unsafe-inline'" in tags.attributes["content"]
    assert markup.startswith("<!doctype html>")


def luminance(colour: list[float]) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: list[float], other: list[float]) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_numbers_are_legible_in_every_cell_and_the_scale_goes_one_way(theme: int) -> None:
    """WCAG asks for a contrast of 4.5 between a text and what is behind it."""
    themes = STYLE.split("prefers-color-scheme: dark")
    colours = {
        name: [int(value[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        for name, value in re.findall(r"--(\w+): #(\w{6})", themes[theme])
    }
    shades = []
    for permille in range(1001):
        weight = permille / 1000
        cell = [p + weight * (i - p) for p, i in zip(colours["page"], colours["ink"], strict=True)]
        number = colours["strong" if weight >= STRONG else "weak"]
        assert contrast(cell, number) >= 4.5, weight
        shades.append(contrast(cell, colours["page"]))
    assert all(less < more for less, more in pairwise(shades))
    assert contrast(colours["page"], colours["text"]) > 7
    assert contrast(colours["page"], colours["quiet"]) > 4.5
