"""The tokens of a text in a browser: they equal the library's."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

import regard

pytest.importorskip("playwright")
from playwright.sync_api import Page, expect

from tests.server.conftest import expect_url, serious_findings

PAIR = ("Let's stick to 😀 improvisation", "The actors <b>laughed</b>.")


def test_tokens_ids_and_embeddings(page: Page, studio: str, axe: str) -> None:
    page.goto(f"{studio}/#tokenize?{urlencode({'source': PAIR[0], 'pair': PAIR[1], 'token': '7'})}")
    page.wait_for_selector(".export-panel")
    [text] = regard.tokenize(*PAIR, model="regard-bert", embeddings=True).texts
    assert page.locator(".tokens-of small").all_inner_texts() == [str(token.id) for token in text.tokens]
    expect(page.locator(".source-text mark")).to_have_text(text.characters(text.tokens[7]))
    numbers = (
        page.get_by_role("region", name="Embeddings of the selected token").locator("tbody tr").first.locator("td")
    )
    assert numbers.all_inner_texts()[-1] == f"{text.embeddings[0].norms[7]:.3f}"
    page.locator(".tokens-of button").nth(7).press("ArrowRight")
    expect_url(page, "token=8")
    page.locator(".tokens-of button").last.click()
    expect(page.get_by_text("segment B: added by the tokenizer")).to_be_visible()
    assert serious_findings(page, axe) == []
