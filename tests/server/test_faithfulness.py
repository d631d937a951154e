"""The faithfulness view in a browser: the verdict and every number equal the result's."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

import regard
from regard.inference.load_model import load_model
from regard.interpret.attribution.probe import probe_model
from regard.interpret.faithfulness import FaithfulnessResult, measure_faithfulness
from regard.tasks.fine_tuned_model import save_fine_tuned
from regard.text import Tokenizer
from tests.interpret.classifiers import deciding

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, Route, expect

from tests.server.conftest import expect_url, open_share, serious_findings

expect.set_options(timeout=30_000)

TEXT = "it is a good day for them"
BLANKED = "Thank you so much, this is the _ help I ever got in New York."
BLANK = "the _ was a good film"
MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def folders(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder, tokenizer = tmp_path_factory.mktemp("classifiers"), Tokenizer.open(tiny_bert_folder)
    save_fine_tuned(deciding(tokenizer, 3), folder / "honest")
    save_fine_tuned(deciding(tokenizer, 3, uniform=True), folder / "uniform")
    save_fine_tuned(deciding(tokenizer, 3, unused_head=True), folder / "astray")
    names = ("honest", "uniform", "astray")
    return {"plain": str(tiny_bert_folder), "digits": "regard-digits", **{name: str(folder / name) for name in names}}


def request_faithfulness(client: TestClient, **arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = client.post("/v1/faithfulness/view", json=arguments).json()
    return found


def open_at(page: Page, address: str, **parameters: str) -> None:
    page.goto(f"{address}/#faithfulness?{urlencode(parameters)}")
    page.wait_for_selector(".export-panel, .faithfulness-notes")


def number(text: str) -> float:
    return float(text.replace(MINUS, "-"))


def check_meter(page: Page, found: FaithfulnessResult) -> None:
    expect(page.locator(".faithfulness-verdict")).to_contain_text(found.verdict)
    for check in found.checks:
        row = page.locator(f'[data-check="{check.name}"]')
        value = row.locator(".faithfulness-number strong").inner_text()
        if check.value is None:
            assert value == "none"
        else:
            assert number(value) == pytest.approx(check.value, abs=6e-4)
        assert f"of {check.threshold:.2f} or more" in row.locator(".faithfulness-number").inner_text()
        assert ("passed" if check.passed else "failed") in row.locator(".faithfulness-mark").inner_text()
        numbers = row.locator(".faithfulness-numbers").inner_text()
        for name, expected in check.numbers.items():
            assert f"{name} {expected:z.3f}".replace("-", MINUS) in numbers


def test_one_map_for_two_classes_of_an_image(page: Page, address: str, folders: dict[str, str]) -> None:
    open_at(page, address, model=folders["digits"], image="digit-4-or-9")
    check_meter(page, regard.faithfulness("regard-digits", image="digit-4-or-9"))
    expect(page.locator(".patch-pictures canvas")).to_have_count(4)
    expect(page.locator(".faithfulness")).to_contain_text("exactly as good a reason for")
    page.get_by_label("Example image").select_option("digit-7")
    expect(page.locator(".faithfulness-answer")).to_contain_text("% 7")
    expect_url(page, "image=digit-7")


def test_a_faithful_map(page: Page, address: str, folders: dict[str, str]) -> None:
    open_at(page, address, model=folders["honest"], text=TEXT)
    found = measure_faithfulness(probe_model(load_model(folders["honest"]), TEXT))
    assert found.verdict == "faithful"
    check_meter(page, found)
    expect(page.locator(".faithfulness-answer")).to_have_text(f"{found.probability:.1%} {found.label}")
    page.get_by_text("Numbers", exact=True).click()
    rows = [row.locator("td").all_inner_texts() for row in page.locator(".strip-table tbody tr").all()]
    for column, expected_scores in enumerate((found.weights, found.integrated.scores, found.gradient.scores)):
        assert [number(row[column]) for row in rows] == pytest.approx(expected_scores, abs=6e-4)


def test_rows_share_a_color_scale(page: Page, address: str, folders: dict[str, str]) -> None:
    """A token's color is its fraction of the row's total magnitude, relative to the largest fraction of any row."""
    open_at(page, address, model=folders["honest"], text=TEXT)
    found = measure_faithfulness(probe_model(load_model(folders["honest"]), TEXT))
    rows = (found.weights, found.integrated.scores, found.gradient.scores)
    words = range(1, len(found.tokens) - 1)
    shares = [[value / sum(abs(row[word]) for word in words) for value in row] for row in rows]
    most = max(abs(row[word]) for row in shares for word in words)
    strips = page.locator(".token-strip").all()
    assert len(strips) == 3
    for strip, row in zip(strips, shares, strict=True):
        tints = strip.locator("span").evaluate_all("all => all.map(e => e.style.getPropertyValue('--strength'))")
        assert [float(tint.rstrip("%")) for tint in tints] == pytest.approx(
            [45 * min(1, abs(share) / most) for share in row], abs=0.51
        )
        against = strip.locator("span").evaluate_all("all => all.map(e => e.className.includes('against'))")
        assert against == [share < 0 for share in row]


def test_another_class_layer_and_head(page: Page, address: str, folders: dict[str, str]) -> None:
    open_at(page, address, model=folders["astray"], text=TEXT)
    page.locator(".choices").get_by_label("Head").select_option("0")
    expect(page.locator(".token-strips h3").first).to_have_text("Attention, layer 1, head 0")
    found = measure_faithfulness(probe_model(load_model(folders["astray"]), TEXT), layer=None, head=0)
    assert found.verdict == "unfaithful"
    check_meter(page, found)
    page.locator(".choices").get_by_label("Class").select_option("negative")
    expect(page.locator(".faithfulness-answer")).to_contain_text("negative")
    check_meter(page, measure_faithfulness(probe_model(load_model(folders["astray"]), TEXT), label="negative", head=0))
    expect_url(page, "head=0", "label=negative")
    open_share(page)
    assert "--label negative --head 0" in page.locator("pre", has_text="regard faithfulness").inner_text()


def test_an_uninformative_map(page: Page, address: str, folders: dict[str, str]) -> None:
    open_at(page, address, model=folders["uniform"], text=TEXT)
    check_meter(page, measure_faithfulness(probe_model(load_model(folders["uniform"]), TEXT)))
    assert page.get_by_text("there is nothing to test").count() == 5


def test_a_pretrained_model_links_to_training(browser: Browser, address: str, folders: dict[str, str]) -> None:
    page = browser.new_page()  # a rejected request is also logged as a console error
    open_at(page, address, model=folders["plain"], text=TEXT)
    expect(page.get_by_text("it has no classes")).to_be_visible()
    expect(page.get_by_role("link", name=folders["honest"])).to_be_visible()
    expect(page.get_by_role("link", name="Train a classifier in Tasks")).to_be_visible()
    page.get_by_role("link", name=BLANKED).click()
    found = measure_faithfulness(probe_model(load_model(folders["plain"]), BLANKED))
    expect(page.locator(".faithfulness-answer")).to_have_text(f"{found.probability:.1%} {found.label}")
    expect(page.locator(".token-strip")).to_have_count(3)
    expect(page.get_by_label("Text to classify")).to_have_value(BLANKED)
    page.get_by_label("Text to classify").fill(BLANK)
    page.keyboard.press("Enter")
    found = measure_faithfulness(probe_model(load_model(folders["plain"]), BLANK))
    expect(page.locator(".faithfulness-answer")).to_have_text(f"{found.probability:.1%} {found.label}")
    expect(page.get_by_text("no classes, so there is no verdict")).to_be_visible()
    page.get_by_text("Numbers", exact=True).click()
    rows = [row.locator("td").all_inner_texts() for row in page.locator(".strip-table tbody tr").all()]
    assert [number(row[0]) for row in rows] == pytest.approx(found.weights, abs=6e-4)
    page.get_by_role("link", name="Train a classifier in Tasks").click()
    expect(page.locator("form.task-form")).to_be_visible()
    page.close()


def test_numbers_near_zero_have_no_sign_and_do_not_wrap(page: Page, address: str, folders: dict[str, str]) -> None:
    def tiny(route: Route) -> None:
        *events, result = [json.loads(line) for line in route.fetch().text().splitlines()]
        payload = result["view"]
        payload["gradient"]["scores"][:3] = [-1e-9, 1e-9, -6e-4]
        payload["integrated"] |= {"baseline_value": -1e-5, "completeness_error": 7e-8}
        payload["checks"][0] |= {"value": -1e-9}
        route.fulfill(body="".join(json.dumps(line) + "\n" for line in (*events, result)))

    page.route("**/v1/faithfulness/events", tiny)
    open_at(page, address, model=folders["honest"], text=TEXT)
    expect(page.locator(".faithfulness-number strong").first).to_have_text("0.000")
    expect(page.locator(".token-strips")).to_contain_text("for every word it is 0.000 (the sum is off by 7e-8)")
    assert page.locator(".strip-error").evaluate("e => getComputedStyle(e).whiteSpace") == "nowrap"
    page.get_by_text("Numbers", exact=True).click()
    rows = page.locator(".strip-table tbody tr td:last-child").all_inner_texts()
    assert rows[:3] == ["0.000", "0.000", f"{MINUS}0.001"]
    assert not any(zero in page.locator("main").inner_text() for zero in ("-0.000", f"{MINUS}0.000"))


def test_downloaded_files(page: Page, browser: Browser, address: str, folders: dict[str, str], tmp_path: Path) -> None:
    open_at(page, address, model=folders["honest"], text=TEXT, label="negative")
    files = {}
    for name in ("HTML", "SVG", "PNG", "CSV", "JSON"):
        open_share(page)
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name, exact=True).click()
        files[name] = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(files[name])
    found = measure_faithfulness(probe_model(load_model(folders["honest"]), TEXT), label="negative")
    rows = list(csv.DictReader(io.StringIO(files["CSV"].read_text("utf-8"))))
    tests = {row["name"]: (float(row["number"]), row["result"]) for row in rows if row["what"] == "test"}
    assert tests == {
        check.name: (pytest.approx(check.value), "passed" if check.passed else "failed") for check in found.checks
    }
    assert found.verdict in files["SVG"].read_text("utf-8")
    assert files["PNG"].read_bytes()[:4] == b"\x89PNG"
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    alone = context.new_page()
    alone.goto(files["HTML"].as_uri())
    alone.wait_for_selector(".export-panel")
    assert alone.locator(".faithfulness").inner_text() == page.locator(".faithfulness").inner_text()
    assert alone.get_by_label("Class").count() == 0
    context.close()


def test_the_route_accepts_valid_and_rejects_invalid_arguments(client: TestClient, folders: dict[str, str]) -> None:
    assert request_faithfulness(client, model=folders["honest"], text=TEXT, layer="-1")["layer"] == 1
    for arguments, error in (
        ({"model": folders["honest"], "text": "good"}, "the tests need 5 or more"),
        ({"model": folders["honest"], "text": TEXT, "layer": "x"}, "layer is 'x'; expected a whole number"),
        ({"model": folders["honest"], "text": TEXT, "layer": "4"}, "no layer 4: this model has one layer, number 1"),
        ({"model": folders["honest"], "text": TEXT, "label": "neutral"}, "unknown label 'neutral'"),
        ({"model": folders["honest"], "text": TEXT, "text_b": "b"}, "classify reads one text"),
        ({"model": folders["honest"], "text": ""}, "the text is empty"),
    ):
        assert error in request_faithfulness(client, **arguments)["error"], arguments


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize(("name", "text"), [("honest", TEXT), ("uniform", TEXT), ("plain", TEXT), ("plain", BLANK)])
def test_the_view_is_accessible_and_fits_a_narrow_screen(
    browser: Browser, address: str, folders: dict[str, str], name: str, text: str, width: int, scheme: Any, axe: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    open_at(page, address, model=folders[name], text=text)
    for part in page.locator("main summary").all():
        part.click()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert serious_findings(page, axe) == []
    page.close()
