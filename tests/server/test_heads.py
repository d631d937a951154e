"""The head patterns view in a browser: its numbers equal the API's."""

from __future__ import annotations

from urllib.parse import urlencode

from playwright.sync_api import Browser, expect

from tests.server.conftest import expect_url, expect_view, resize

LINES = "The cat saw the dog in the house.\nThe dog saw the cat.\nHe was a good king.\nThe queen loved the king."


def test_the_findings_of_a_clicked_head_equal_the_apis(browser: Browser, studio: str, axe: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(120_000)
    complaints: list[str] = []
    page.on("console", lambda one: complaints.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    with expect_view(page, "heads") as payload:
        page.goto(f"{studio}/#heads?{urlencode({'text': LINES})}")
    assert (payload["read"], len(payload["heads"])) == (2, 48)
    buttons = page.locator(".head-grid button")
    expect(buttons).to_have_count(48)
    buttons.nth(10).click()
    head = payload["heads"][10]
    expect(page.locator(".head-patterns h2")).to_have_text(
        f"Layer {head['layer']}, head {head['head']}: {head['pattern'] or 'none of these'}"
    )
    displayed = [row.locator("td").first.inner_text() for row in page.locator(".findings tbody tr").all()]
    assert displayed == ["\N{EN DASH}" if one["score"] is None else f"{one['score']:.3f}" for one in head["findings"]]
    expect(page.locator(".examples li")).to_have_count(len(head["examples"]))
    buttons.nth(10).press("ArrowDown")
    expect_url(page, "head=16")
    page.locator(".legend button", has_text="delimiter").click()
    score = payload["heads"][0]["findings"][4]["score"]
    expect(buttons.first).to_have_text(f"{score:.3f}".lstrip("0"))
    page.evaluate(axe)
    found = page.evaluate("async () => (await axe.run()).violations.map(one => [one.id, one.impact])")
    assert [one for one in found if one[1] in ("serious", "critical")] == []
    resize(page, 390)
    context.close()
    assert complaints == []
