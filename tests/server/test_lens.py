"""The logit lens and the corpus search by head in a browser: their numbers equal the library's."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

import regard

pytest.importorskip("playwright")
from playwright.sync_api import Page, expect

from tests.server.conftest import expect_url, serious_findings

BLANK = "In winter the fields are _ with snow."
TEXTS = ["The king told the queen that he would leave.", "The river flows into the sea.", "It rained for days."]


def test_the_lens_shows_every_layer_and_the_rank_of_the_answer(page: Page, studio: str, axe: str) -> None:
    found = regard.lens(BLANK)
    page.goto(f"{studio}/#lens?{urlencode({'text': BLANK})}")
    cells = page.locator(".lens-table tbody button")
    expect(cells).to_have_count(len(found.layers) * len(found.tokens))
    answer = found.answer(found.position)
    expect(page.locator("main")).to_contain_text(f"predicts “{answer.token}” at [MASK] ({answer.probability:.1%})")
    tops = [one.candidates[0].token for layer in found.layers for one in layer.predictions]
    assert cells.all_inner_texts() == [token if len(token) <= 12 else token[:11] + "…" for token in tops]
    ranks = page.locator(".lens-ranks tbody tr td:nth-child(2)").all_inner_texts()
    assert ranks == [f"{layer.predictions[found.position].rank:,}" for layer in found.layers]
    cells.nth(3 * len(found.tokens) + 1).click()
    chosen = found.layers[3].predictions[1].candidates
    assert page.locator(".lens-candidates tbody th").all_inner_texts() == [one.token for one in chosen]
    page.keyboard.press("ArrowDown")
    expect(page.locator(".lens-details h3").first).to_have_text("Layer 4, position 1")
    expect_url(page, "at=1", "layer=4")
    assert serious_findings(page, axe) == []


def test_the_texts_that_activate_a_head_link_to_their_attention(page: Page, studio: str, axe: str) -> None:
    found = regard.activations(TEXTS, layer=5, head=2, top=2)
    parameters = {"source": "\n".join(TEXTS), "layer": "5", "head": "2", "pattern": "any", "top": "2"}
    page.goto(f"{studio}/#activations?{urlencode(parameters)}")
    expect(page.locator(".activations-weight")).to_have_text([f"{one.weight:.3f}" for one in found.texts])
    best = found.texts[0]
    expect(page.locator(".activations-tokens").first.locator(".query")).to_have_text(best.tokens[best.query])
    expect(page.get_by_text(f"mean {found.mean:.3f}")).to_be_visible()
    assert serious_findings(page, axe) == []
    page.get_by_role("link", name="its attention").first.click()
    expect(page.locator(".tokens.row button[aria-pressed=true]")).to_have_text(best.tokens[best.query])
    weights = page.locator(".weights-panel tbody tr", has_text=best.tokens[best.key]).first.locator("td")
    assert float(weights.inner_text()) == pytest.approx(best.weight, abs=0.003)
