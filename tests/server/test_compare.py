"""The fill-in-the-blank comparison in a browser: its controls work, and it shows the tokens the library chooses."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

import regard
from regard.interpret.masked_lm.charts import Chart
from regard.interpret.masked_lm.comparison import PairResult
from tests.server.conftest import expect_url, open_share, resize, watched

TEXTS = ["Jane worked as a _.", "Jim worked as a _."]


@pytest.fixture
def page(browser: Browser, studio: str) -> Iterator[Page]:
    with watched(browser, seconds=60) as one:
        yield one


def at(studio: str, **parameters: str) -> str:
    return f"{studio}/#compare?{urlencode(parameters)}"


def downloaded(page: Page) -> list[dict[str, str]]:
    open_share(page)
    page.get_by_label("exact CSV cells").check()  # "-" is a token, and would be "'-"
    open_share(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.fixture(scope="module")
def library() -> PairResult:
    result = regard.compare(*TEXTS)
    assert isinstance(result, PairResult)
    return result


def test_two_sentences_can_be_typed(page: Page, studio: str, library: PairResult) -> None:
    page.goto(f"{studio}/#compare")
    caption = page.locator(".finding")
    expect(caption).to_contain_text("more with Texas than New York")
    page.get_by_label("Sentence one").fill(TEXTS[0])
    page.get_by_label("Sentence two").fill(TEXTS[1])
    page.keyboard.press("Enter")
    expect(caption).to_have_text(library.caption)
    first: Any = library.to_dict()["tokens"][0]
    cells = page.locator(".compare tbody tr").first.locator("th, td").all_inner_texts()
    assert cells[:3] == [first["token"], f"{first['probability_a']:.3%}", f"{first['probability_b']:.3%}"]
    assert float(cells[3].replace("\N{MINUS SIGN}", "-")) == pytest.approx(first["difference"], abs=0.006)
    expect(page.locator(".warning")).to_contain_text("harmful stereotypes")
    page.get_by_role("button", name="Reset").click()
    expect(caption).to_contain_text("Texas")


@pytest.mark.parametrize("chart", ["likelihoods", "differences"])
def test_the_page_shows_the_tokens_that_the_library_chooses(page: Page, studio: str, chart: Chart) -> None:
    page.goto(at(studio, text=TEXTS[0], text_b=TEXTS[1]))
    page.get_by_role("button", name=chart.title()).click()
    for number, name in ((30, "30"), (1000, "1000"), (0, "All")):
        page.get_by_role("button", name=name, exact=True).click()
        document = regard.compare(*TEXTS, top=number or "all", chart=chart).to_dict()
        expected: Any = document["tokens"]
        expect(page.locator(".finding")).to_have_text(str(document["caption"]))
        rows = downloaded(page)
        assert [row["token"] for row in rows] == [token["token"] for token in expected]
        for column in ("value_a", "value_b", "probability_a", "probability_b", "mean", "difference"):
            assert float(rows[-1][column]) == pytest.approx(expected[-1][column], rel=1e-4, abs=1e-5)


def test_a_grid_has_six_charts(page: Page, studio: str) -> None:
    page.goto(at(studio, text="In [1908|2018], [he|she] was employed as a _.", text_b=""))
    expect(page.locator(".grid-charts canvas")).to_have_count(6)
    expect(page.locator(".finding")).to_contain_text("2018 / he")
    page.get_by_role("button", name="1908 / he · 2018 / he").click()
    expect(page.locator(".finding")).to_contain_text("more with 1908 / he than 2018 / he")
    expect_url(page, "color=2")


def test_every_word_can_be_masked(page: Page, studio: str) -> None:
    page.goto(at(studio, text="In Texas, they like to <b>buy</b> _.", text_b=""))
    expect(page.locator(".completions li")).to_have_count(90)
    page.get_by_role("button", name="mask Texas").click()
    words: Any = regard.compare("In Texas, they like to <b>buy</b> _.").to_dict()["words"]
    best = words[1]["completions"][0]
    expect(page.locator(".completions li").first).to_have_text(f"{best['probability']:.3%} {best['token']}")


def test_a_range_of_years(page: Page, studio: str) -> None:
    page.goto(at(studio, text="In [1990..1994], [he|she] was employed as a _.", text_b=""))
    expect(page.locator(".finding")).to_contain_text("1990 to 1994")
    rows = downloaded(page)
    assert len(rows) == 150
    assert list(rows[0]) == ["token", "1990", "1991", "1992", "1993", "1994"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("In [1908|2018], [he|she] was a _.", ".grid-charts"),
        ("They like to buy _.", ".completions"),
        ("In [1990..1992], [he|she] was a _.", "section[aria-label='A range of numbers']"),
    ],
)
def test_the_view_is_accessible_and_fits_a_narrow_screen(
    page: Page, studio: str, axe: str, text: str, part: str
) -> None:
    page.goto(at(studio, text=text, text_b=""))
    page.wait_for_selector(f"[aria-busy=false] {part}")
    page.evaluate(axe)
    found = page.evaluate("async () => (await axe.run()).violations.map(one => [one.id, one.impact])")
    assert [one for one in found if one[1] in ("serious", "critical")] == []
    resize(page, 390)
