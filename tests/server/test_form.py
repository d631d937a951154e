"""The form above every view and the link below it: rejected input can be corrected, and a link is complete."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.server.conftest import open_share, watched


@pytest.fixture(scope="module")
def folders(tiny_bert_folder: Path) -> dict[str, str]:
    return {"bert": str(tiny_bert_folder)}


def test_rejected_input_can_be_corrected(browser: Browser, address: str) -> None:
    page = browser.new_page()  # not `watched`: the browser itself logs rejected requests
    page.goto(f"{address}/#ablation?text=a+fine+day&at=blanks")
    expect(page.get_by_role("alert")).to_contain_text("blank")
    hidden = page.locator("textarea[name=at]")
    expect(hidden).to_have_value("blanks")
    hidden.fill("masked")
    hidden.press("Enter")
    page.wait_for_selector(".export-panel")
    expect(page.locator("textarea[name=at]")).to_have_count(0)
    page.close()


def test_a_link_contains_the_text_and_the_model(browser: Browser, address: str, folders: dict[str, str]) -> None:
    with watched(browser) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.goto(f"{address}/#attention?layer=1")
        page.wait_for_selector(".export-panel")
        text = page.locator("textarea[name=text]").input_value()
        open_share(page)
        page.get_by_role("button", name="Link").click()
        expect(page.locator(".files [role=status]")).to_have_text("Link copied.")
        link = page.evaluate("navigator.clipboard.readText()")
        page.goto("about:blank")
        page.goto(link)
        page.wait_for_selector(".export-panel")
        expect(page.locator("textarea[name=text]")).to_have_value(text)
        for part in ("layer=1", "text=", "model="):
            assert part in link


@pytest.mark.parametrize("view", ["attention", "compare", "ablation", "translation"])
def test_the_button_is_readable_on_a_phone(browser: Browser, address: str, view: str) -> None:
    with watched(browser) as page:
        page.set_viewport_size({"width": 390, "height": 800})
        page.goto(f"{address}/#{view}")
        button = page.locator("form.request-form button.main")
        expect(button).to_be_visible()
        needed, width, lines, height = button.evaluate(
            "one => [one.scrollWidth, one.clientWidth, one.getClientRects().length, one.clientHeight]"
        )
        assert needed <= width and lines == 1 and height < 60


def test_the_title_names_the_view(page: Page, address: str) -> None:
    page.goto(f"{address}/#heads")
    expect(page).to_have_title("Regard: Head patterns")
