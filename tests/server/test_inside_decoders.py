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

LENGTH = 8192
OBSERVE_TASKS = """window.tasks = [];
const observer = new PerformanceObserver((list) => list.getEntries().forEach((one) => window.tasks.push(one.duration)));
observer.observe({ type: "longtask" });"""


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
    expect(page.locator(".long-attention .part")).to_have_attribute("aria-busy", "false")
    assert len(page.workers) == 1


@pytest.fixture(scope="module")
def long() -> LongAttention:
    """A head over 8,192 tokens; its full map would have 67 million weights."""
    random = np.random.default_rng(0)
    query, key = (random.normal(size=(LENGTH, 64)).astype(np.float32) for _ in range(2))
    return LongAttention(
        model="random",
        family="llama",
        layer=1,
        head=0,
        tokens=[f"t{number}" for number in range(LENGTH)],
        truncated=0,
        causal=True,
        window=None,
        scale=0.125,
        query=query,
        key=key,
        normalizer=np.full(LENGTH, 9.0, dtype=np.float32),
        cell=16,
        overview=random.random((512, 512)).astype(np.float32),
        strongest=[AttentionLink(row=8000, column=7990, weight=0.5)],
    )


def expect_weight(page: Page, result: LongAttention, row: int, column: int) -> None:
    """The first cell of the part that the pointer is on has the library's weight."""
    part = page.locator(".long-attention .part")
    expect(part).to_have_attribute("aria-busy", "false")
    expect(part).to_contain_text(f"Rows {row} to")
    canvas = part.locator("canvas")
    canvas.hover(position={"x": 20, "y": 20}, force=True)
    shown = re.search(r"(\d+) “t\d+” attends to (\d+) “t\d+”: (.*)%", part.inner_text())
    assert shown is not None
    i, j = int(shown[1]), int(shown[2])
    assert row <= i < row + 90 and column <= j < column + 90
    assert shown[3] == f"{100 * result.tile(i, j, 1)[0, 0]:.2f}"


@pytest.mark.long
def test_8192_tokens_do_not_block_the_page(page: Page, tmp_path: Path, long: LongAttention) -> None:
    """Parts of 4 million weights are computed in a worker, and no task of the page takes 50 milliseconds meanwhile."""
    long.save(tmp_path / "page.html")
    page.add_init_script(OBSERVE_TASKS)
    page.goto(f"{(tmp_path / 'page.html').as_uri()}")
    expect(page.get_by_label("Attention of rows 7872 to 8127, columns 7862 to 8117").last).to_be_visible()
    page.get_by_role("button", name="2,048").click()
    expect_weight(page, long, LENGTH - 2048, LENGTH - 2048)
    assert len(page.workers) == 1
    longest = []
    for x in (50, 100, 150):  # one of three: a busy machine may interrupt the browser
        page.evaluate("window.tasks.length = 0")
        page.get_by_label("Attention of layer 1, head 0: the whole map").last.click(position={"x": x, "y": 300})
        parameters = parse_qs(page.url.partition("?")[2])
        expect_weight(page, long, int(parameters["row"][0]), int(parameters["column"][0]))
        longest.append(page.evaluate("Math.max(0, ...window.tasks)"))
    assert min(longest) < 50  # milliseconds
    # Tiles of the parts in between are dropped.
    page.get_by_role("button", name="2,048").focus()
    for key in ["ArrowUp"] * 8 + ["ArrowLeft"] * 8:
        page.keyboard.press(key)
    expect_weight(page, long, 0, 0)


REFUSALS = {
    "exception": "window.Worker = class { constructor() { throw new DOMException('refused', 'SecurityError'); } };",
    "error event": """window.Worker = class extends EventTarget {
        set onerror(handler) { setTimeout(() => handler(new Event("error"))); }
        terminate() {}
    };""",
}


@pytest.mark.parametrize("script", REFUSALS.values(), ids=REFUSALS)
def test_a_part_without_a_worker(page: Page, tmp_path: Path, long: LongAttention, script: str) -> None:
    """Where the browser refuses to start a worker, the page computes the tiles."""
    long.save(tmp_path / "page.html")
    page.add_init_script(script)
    page.goto(f"{(tmp_path / 'page.html').as_uri()}#long_attention?row=600&column=300")
    expect_weight(page, long, 600, 300)
    assert page.workers == []
