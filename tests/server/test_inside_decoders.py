"""Logit attribution, activation patching and attention over long texts in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlencode

import numpy as np
import pytest

import regard
from regard.interpret.attention.long import AttentionLink, LongAttention

pytest.importorskip("playwright")
from playwright.sync_api import Page, expect

from tests.server.conftest import serious_findings

LONGEST_TASK = """() => new Promise((resolve) => {
  const tasks = [0];
  const observer = new PerformanceObserver((list) => list.getEntries().forEach((one) => tasks.push(one.duration)));
  observer.observe({ type: "longtask", buffered: true });
  setTimeout(() => resolve(Math.max(...tasks)), 100);
})"""


@pytest.fixture(scope="module")
def folders() -> dict[str, str]:
    return {"gpt": "regard-gpt"}


def test_logit_attribution_and_patching(page: Page, address: str, axe: str) -> None:
    prompt = "The river flows into the Atlantic"
    found = regard.logit_attribution(prompt, answer="Ocean", wrong="River")
    page.goto(f"{address}/#logit_attribution?{urlencode({'text': prompt, 'answer': 'Ocean', 'wrong': 'River'})}")
    expect(page.locator("main")).to_contain_text(f"minus that of ' River' is {found.logit:.3f}")
    largest = max(found.contributions, key=lambda part: abs(part[1]))
    expect(page.locator("main table").first).to_contain_text(f"{largest[0]}")
    expect(page.locator("main table").first).to_contain_text(f"{largest[1]:+.3f}")
    assert serious_findings(page, axe) == []
    prompts = {"clean": "The queen said that", "corrupted": "The king said that", "answer": "she", "wrong": "he"}
    patched = regard.patch(**prompts)
    page.goto(f"{address}/#patch?{urlencode(prompts)}")
    expect(page.locator("main")).to_contain_text(f"{patched.clean_difference:.3f} after 'The queen said that'")
    canvas = page.get_by_label("Hidden state of one layer and position from the clean prompt").last
    shown = [
        f"layer 5  that: {100 * patched.residual[5][3]:.0f};",
        f"layer 1  said: {100 * patched.residual[1][2]:.0f};",
    ]
    expect(canvas).to_have_attribute("aria-label", re.compile(f"{shown[1]}.*{shown[0]}"))


def test_a_part_of_a_long_map_is_that_of_the_library(page: Page, address: str, axe: str) -> None:
    text = "The king told the queen that he would leave his castle. " * 8
    found = regard.long_attention(text, model="regard-gpt", layer=5, head=3)
    page.goto(
        f"{address}/#long_attention?{urlencode({'text': text, 'layer': '5', 'head': '3', 'model': 'regard-gpt'})}"
    )
    link = found.strongest[0]
    expect(page.locator("main")).to_contain_text("in layer 5, head 3 of regard-gpt")
    expect(page.locator("main table tbody tr").first).to_contain_text(f"{link.weight:.1%}")
    assert serious_findings(page, axe) == []


def test_8192_tokens_do_not_freeze_the_page(page: Page, tmp_path: Path) -> None:
    """The whole page opens, and moving the part does not block it; a full map would have 67 million weights."""
    length, width = 8192, 64
    random = np.random.default_rng(0)
    query, key = (random.normal(size=(length, width)).astype(np.float32) for _ in range(2))
    overview = random.random((512, 512)).astype(np.float32)
    result = LongAttention(
        model="random",
        family="llama",
        layer=1,
        head=0,
        tokens=[f"t{number}" for number in range(length)],
        truncated=0,
        causal=True,
        window=None,
        scale=0.125,
        query=query,
        key=key,
        normalizer=np.full(length, 9.0, dtype=np.float32),
        cell=16,
        overview=overview,
        strongest=[AttentionLink(row=8000, column=7990, weight=0.5)],
    )
    result.save(tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    tile = page.get_by_label("Attention of rows 7872 to 8127, columns 7862 to 8117").last
    expect(tile).to_be_visible()
    page.get_by_label("Attention of layer 1, head 0: the whole map").last.click(position={"x": 100, "y": 200})
    expect(tile).to_be_hidden()
    figures = page.locator(".long-attention figure")
    box = figures.nth(1).locator("canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    parameters = parse_qs(page.url.partition("?")[2])
    row, column = int(parameters["row"][0]), int(parameters["column"][0])
    expect(figures.nth(1)).to_contain_text(f"{100 * result.tile(row + 2, column + 2, 1)[0, 0]:.2f}%")
    assert page.evaluate(LONGEST_TASK) < 2000  # milliseconds; 67 million weights take minutes
