"""The search view in a browser: its hits equal the library's, with the words in common marked."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from urllib.parse import urlencode

import pytest

import regard

pytest.importorskip("playwright")
from playwright.sync_api import Page, expect

from tests.server.conftest import download, expect_url, serious_findings

MODEL = "regard-bert"
TEXTS = [
    "the soup was hot",
    "fresh bread and soup",
    "the team won",
    "he sang <i>a soup</i> & 😀 soup",
    "a game of two teams",
]


def open_search(page: Page, studio: str, **parameters: str) -> None:
    page.goto(f"{studio}/#search?{urlencode({'source': chr(10).join(TEXTS), 'top': '3', **parameters})}")
    page.wait_for_selector(".export-panel")


def test_hits_and_methods(page: Page, studio: str, axe: str, tmp_path: Path) -> None:
    open_search(page, studio, query="hot soup\nteams", method="dense")
    expect(page.locator(".hits ol")).to_have_count(2)
    expected = regard.search(TEXTS, ["hot soup", "teams"], top=3, model=MODEL, device="cpu")
    for number, result in enumerate(expected.results):
        ranking = page.locator(".hits ol").nth(number)
        assert ranking.locator("p[dir]").all_inner_texts() == [hit.text for hit in result.hits]
        shown = [float(text) for text in ranking.locator(".score").all_inner_texts()]
        assert shown == pytest.approx([hit.score for hit in result.hits], abs=0.002)
    page.get_by_role("button", name="Words (BM25)").click()
    expect(page.get_by_text("The score is BM25")).to_be_visible()
    expect_url(page, "method=bm25")
    found = regard.search(TEXTS, "hot soup", top=3, model=MODEL, method="bm25", device="cpu").results[0]
    first = page.locator(".hits ol").first
    expect(first.locator("p[dir]").first).to_have_text(found.hits[0].text)
    marks = [item.locator("mark").all_inner_texts() for item in first.locator("li").all()]
    assert marks == [[hit.text[start:end] for start, end in hit.matches] for hit in found.hits]
    rows = list(csv.DictReader(io.StringIO(download(page, "CSV", tmp_path).read_text("utf-8"))))
    assert [row["text"] for row in rows[:3]] == [hit.text for hit in found.hits]
    assert serious_findings(page, axe) == []


def test_clusters(page: Page, studio: str, axe: str) -> None:
    page.goto(f"{studio}/#clusters?{urlencode({'source': chr(10).join(TEXTS), 'num_clusters': '2'})}")
    page.wait_for_selector(".export-panel")
    expected = regard.cluster(TEXTS, model=MODEL, num_clusters=2, device="cpu")
    buttons = page.locator(".clusters ol button")
    for number, one in enumerate(expected.clusters):
        noun = "text" if one.size == 1 else "texts"
        assert buttons.nth(number).inner_text() == f"{one.size} {noun}: {', '.join(one.words)}"
        buttons.nth(number).click()
        expect(page.get_by_role("heading", name=f"All texts of cluster {number}")).to_be_visible()
        members = [one.text for one in expected.members if one.cluster == number]
        shown = [text.partition(" ")[2] for text in page.locator(".members li").all_inner_texts()]
        assert sorted(shown) == sorted(members)
    assert serious_findings(page, axe) == []


@pytest.mark.parametrize("size", [(1280, 720), (390, 844)])
def test_the_page_does_not_scroll_sideways(page: Page, studio: str, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    open_search(page, studio, query="word" * 60)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_method_changes_from_the_initial_values(page: Page, studio: str) -> None:
    page.goto(f"{studio}/#search")
    page.wait_for_selector(".export-panel")
    page.get_by_role("button", name="Both").click()
    expect(page.get_by_text("The score is the sum")).to_be_visible()
    expect(page.locator(".hits li")).to_have_count(10)
