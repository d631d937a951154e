"""The attention view in a browser: its controls work, and its numbers equal the API's."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page, Request, Route, expect

from regard.render import bundle
from tests.server.conftest import addresses, download, expect_url, expect_view, point_at, serious_findings

TEXT = "The animal did not cross the street because it was too tired."
PAIR = {"text": "Did the unhappy cat sleep?", "text_b": "Yes, it was overwhelmingly tired."}


def open_at(page: Page, studio: str, **parameters: str) -> dict[str, Any]:
    """Opens the view at a URL and returns the API's result for the same request."""
    with expect_view(page, "look") as payload:
        page.goto(f"{studio}/#attention?{urlencode(parameters)}")
    page.wait_for_selector(".export-panel")
    return payload


def weights_of(payload: dict[str, Any]) -> NDArray[np.float64]:
    (found,) = payload["maps"]
    shape = found["layers"], found["heads"], len(found["rows"]), len(found["columns"])
    return np.frombuffer(base64.b64decode(found["weights"]), np.uint8).reshape(shape) / 255


def displayed_rows(page: Page) -> dict[int, list[float]]:
    """The rows of the table of weights: token position to one number per head."""
    rows = page.locator(".weights-panel tbody tr").all()
    return {
        int(row.get_attribute("data-index") or -1): [float(text) for text in row.locator("td").all_inner_texts()]
        for row in rows
    }


def test_the_numbers_of_a_typed_text_equal_the_apis(page: Page, studio: str) -> None:
    page.goto(f"{studio}/#attention?{urlencode({'text': TEXT})}")
    page.wait_for_selector(".export-panel")
    page.get_by_label("Text", exact=True).fill(TEXT.replace("tired", "wide"))
    with expect_view(page, "look") as payload:
        page.keyboard.press("Enter")
    assert payload["texts"] == [TEXT.replace("tired", "wide")]
    expect(page.locator(".tokens.row button", has_text="wide")).to_be_visible()
    page.get_by_role("button", name="Head 3").click()
    page.get_by_role("button", name="Layer above").click()
    page.locator(".tokens.row button").nth(9).click()
    row = weights_of(payload)[1, 3, 9]
    found = displayed_rows(page)
    assert len(found) == 12
    assert all(abs(numbers[0] - row[index]) <= 0.0005 for index, numbers in found.items())
    assert sorted(found, key=lambda index: -row[index]) == list(found)
    expect_url(page, "layer=2", "heads=3", "lock=r9")
    assert page.locator("pre", has_text="regard look").text_content() == payload["cli"]
    assert page.locator("pre", has_text="import").text_content() == payload["python"]
    page.get_by_label("Text", exact=True).fill("Another text")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator(".tokens.row button").nth(1)).to_have_text("another")
    expect_url(page, "layer=2", "heads=3", absent="lock")
    page.go_back()
    expect(page.locator(".tokens.row button", has_text="wide")).to_be_visible()


def test_two_heads_a_text_pair_and_word_level(page: Page, studio: str) -> None:
    payload = open_at(page, studio, **PAIR, layer="3", heads="1,4", pair="ba", level="word", lock="r12")
    (found,) = payload["maps"]
    a = [i for i, segment in enumerate(found["column_segments"]) if segment == 0]
    b = [i for i, segment in enumerate(found["row_segments"]) if segment == 1]
    words = list(dict.fromkeys(found["row_words"][i] for i in b))
    assert len(words) < len(b)  # overwhelming ##ly
    assert page.locator(".tokens.row button").count() == len(words)
    assert page.locator(".tokens.column button").count() == len({found["column_words"][i] for i in a})
    pieces = [i for i in b if found["row_words"][i] == found["row_words"][12]]
    weights = weights_of(payload)[2]
    for index, numbers in displayed_rows(page).items():
        column = [i for i in a if found["column_words"][i] == sorted({found["column_words"][j] for j in a})[index]]
        expected = [weights[head][np.ix_(pieces, column)].sum() / len(pieces) for head in (1, 4)]
        assert np.allclose(numbers, expected, atol=0.0006)


def test_hovering_over_a_column_shows_the_tokens_that_attend_to_it(page: Page, studio: str) -> None:
    payload = open_at(page, studio, text=TEXT, layer="4", heads="0")
    page.locator(".tokens.column button").nth(14).hover()
    expect(page.locator(".weights-panel h3")).to_contain_text("is attended to by")
    column = weights_of(payload)[3, 0, :, 14]
    assert all(abs(numbers[0] - column[index]) <= 0.0005 for index, numbers in displayed_rows(page).items())


def test_the_neuron_view_shows_queries_and_keys(page: Page, studio: str) -> None:
    payload = open_at(page, studio, text=TEXT, mode="neuron", layer="3", heads="5", lock="r9")
    (found,) = payload["maps"]
    count = len(found["rows"])
    q, k = (
        np.frombuffer(base64.b64decode(found[name]), "<f2").astype(np.float64).reshape(8, 6, count, -1)[2, 5]
        for name in ("q", "k")
    )
    scores = k @ q[9] * found["scale"]
    softmax = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    cells = page.locator(".neuron tbody tr").all()
    assert len(cells) == count
    numbers = np.array([[float(text) for text in row.locator("td.number").all_inner_texts()] for row in cells])
    assert np.allclose(numbers[:, 0], scores, atol=0.0006) and np.allclose(numbers[:, 1], softmax, atol=0.0006)
    assert np.allclose(softmax, weights_of(payload)[2, 5, 9], atol=0.004)  # and the map shows the same


def test_the_model_view_has_every_head_and_arrow_key_navigation(page: Page, studio: str) -> None:
    payload = open_at(page, studio, text=TEXT, mode="grid")
    assert page.locator(".thumbnail").count() == 8 * 6
    page.get_by_role("button", name="Layer 1, head 0").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
    expect(page.get_by_role("button", name="Layer 2, head 2")).to_be_focused()
    canvas = page.locator(".heat canvas")
    expect(canvas).to_have_attribute("aria-label", re.compile(r"^Map of layer 2, head 2: 15 by 15"))
    point_at(canvas, 1, 1, dx=-5, dy=-5)
    expect(page.locator(".heat .note")).to_have_text(f"[SEP] attends to [SEP]: {weights_of(payload)[1, 2, -1, -1]:.3f}")


def test_rollout_and_flow_equal_the_librarys(page: Page, studio: str) -> None:
    payload = open_at(page, studio, text=TEXT, source="rollout", layer="5", lock="r9")
    rollout = np.frombuffer(base64.b64decode(payload["maps"][0]["rollout"]), np.uint8).reshape(8, 15, 15) / 255
    rollout *= np.array(payload["maps"][0]["rollout_largest"])[:, None, None]
    assert all(abs(numbers[0] - rollout[4, 9, index]) <= 0.0005 for index, numbers in displayed_rows(page).items())
    page.get_by_role("button", name="flow").click()
    expect(page.locator(".weights-panel thead")).to_contain_text("flow")
    flow = np.frombuffer(base64.b64decode(payload["maps"][0]["flow"]), np.uint8).reshape(15, 15) / 255
    flow *= payload["maps"][0]["flow_largest"]
    assert all(abs(numbers[0] - flow[9, index]) <= 0.0005 for index, numbers in displayed_rows(page).items())


def test_a_new_request_cancels_the_earlier_one(browser: Browser, studio: str) -> None:
    page = browser.new_page()
    broken: list[str] = []

    def on_failure(request: Request) -> None:
        if request.timing["responseStart"] < 0:  # Chromium also reports some streams that have ended
            broken.append(json.loads(request.post_data or "{}")["text"])

    page.on("requestfailed", on_failure)
    page.goto(f"{studio}/#attention?text=before")
    page.wait_for_selector(".export-panel")

    def answer_all_but_slow(route: Route) -> None:
        if "slow" not in (route.request.post_data or ""):
            route.continue_()

    page.route("**/v1/look/events", answer_all_but_slow)
    for text in ("slow one", "quick one"):
        page.get_by_label("Text", exact=True).fill(text)
        page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator(".tokens.row button").nth(1)).to_have_text("quick")
    assert broken == ["slow one"]
    page.close()


def test_truncation_is_reported(page: Page, studio: str, tmp_path: Path) -> None:
    payload = open_at(page, studio, text="water and people " * 200)
    assert [note.split()[0] for note in payload["notes"]] == ["90", "rollout", "flow"]  # and 512 tokens are used
    for note in payload["notes"]:
        expect(page.locator(".attention").get_by_text(note, exact=True)).to_be_visible()
    file = download(page, "HTML", tmp_path)
    page.goto(file.as_uri())
    for note in payload["notes"]:
        expect(page.locator(".attention").get_by_text(note, exact=True)).to_be_visible()


def test_twelve_heads_have_distinct_colors(page: Page, studio: str, tmp_path: Path) -> None:
    """The built-in model has six heads; its maps are duplicated to simulate twelve."""
    payload = open_at(page, studio, text=TEXT)
    (found,) = payload["maps"]
    weights = np.frombuffer(base64.b64decode(found["weights"]), np.uint8).reshape(8, 6, 15, 15)
    twice = base64.b64encode(np.concatenate([weights, weights], axis=1).tobytes()).decode()
    payload["maps"] = [{**found, "heads": 12, "weights": twice, "q": None, "k": None}]
    file = tmp_path / "twelve.html"
    file.write_text(bundle.page({**payload, "place": "#attention?heads=all&lock=r9"}), encoding="utf-8")
    page.goto(file.as_uri())
    page.wait_for_selector(".export-panel")
    buttons = page.locator(".heads button")
    assert buttons.all_inner_texts() == [str(head) for head in range(12)]
    strips = buttons.evaluate_all("all => all.map((one) => getComputedStyle(one).backgroundImage)")
    assert len(set(strips)) == 12
    swatches = page.locator(".weights-panel .swatch").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).backgroundImage)"
    )
    assert swatches == strips  # the legend is the same everywhere
    svg = download(page, "SVG", tmp_path).read_text(encoding="utf-8")
    looks = set(
        re.findall(r'stroke="(#\w+)" stroke-opacity="[\d.]+" stroke-width="[\d.]+"( stroke-dasharray="[^"]+")?', svg)
    )
    assert len(looks) == 12


def test_html_in_a_text_stays_text(page: Page, studio: str) -> None:
    open_at(page, studio, text="<img src=x onerror=alert(1)><b>bold</b>")
    assert page.locator("main img, main b").count() == 0
    assert page.locator(".tokens.row button").all_inner_texts()[1] == "<"


def test_data_files_contain_the_displayed_numbers(page: Page, studio: str, tmp_path: Path) -> None:
    payload = open_at(page, studio, text='a "good, day"', layer="2", heads="2,3")
    weights = weights_of(payload)[1]
    files = {name: download(page, name, tmp_path) for name in ("CSV", "JSON", "SVG", "PNG")}
    rows = list(csv.DictReader(io.StringIO(files["CSV"].read_text(encoding="utf-8"))))
    assert len(rows) == 2 * weights.shape[1] * weights.shape[2]
    assert [str(value) for record in json.loads(files["JSON"].read_text()) for value in record.values()] == [
        value for row in rows for value in row.values()
    ]
    for row in rows:
        assert row["layer"] == "2" and row["row_token"] == payload["maps"][0]["rows"][int(row["row"])]
        expected = weights[int(row["head"]), int(row["row"]), int(row["column"])]
        assert abs(float(row["weight"]) - expected) <= 0.00006
    assert files["PNG"].read_bytes().startswith(b"\x89PNG")
    svg = files["SVG"].read_text(encoding="utf-8")
    assert "&quot;" in svg and addresses(svg) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("mode", ["lines", "grid", "neuron"])
def test_an_exported_file_works_from_disk_without_a_network(
    page: Page, browser: Browser, studio: str, tmp_path: Path, mode: str
) -> None:
    open_at(page, studio, text=TEXT, mode=mode, layer="3", heads="2", lock="r9")
    before = page.locator(".attention").inner_text()
    file = download(page, "HTML", tmp_path)
    assert all(urlsplit(one).hostname == "www.w3.org" for one in addresses(file.read_text(encoding="utf-8")))
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    alone = context.new_page()
    requests: list[str] = []
    alone.on("request", lambda request: requests.append(request.url))
    alone.on("pageerror", lambda error: requests.append(str(error)))
    alone.on("console", lambda message: requests.append(message.text) if message.type == "error" else None)
    alone.goto(file.as_uri())
    alone.wait_for_selector(".export-panel")
    assert alone.locator(".attention").inner_text() == before
    alone.get_by_role("button", name="Head 4", exact=True).click()
    assert "heads=4" in alone.url and alone.get_by_role("button", name="HTML").count() == 0
    assert [one for one in requests if not one.startswith(("file:", "data:"))] == []
    context.close()


@pytest.mark.parametrize("form", ["halves", "bytes"])
def test_maps_are_computed_from_queries_and_keys_if_weights_are_missing(
    page: Page, studio: str, tmp_path: Path, form: str
) -> None:
    payload = open_at(page, studio, text=TEXT)
    expected = weights_of(payload)[5, 1, 9]
    (found,) = payload["maps"]
    for name in ("q", "k") if form == "bytes" else ():
        vectors = np.frombuffer(base64.b64decode(found[name]), "<f2").astype(np.float32).reshape(8 * 6 * 15, -1)
        steps = (np.abs(vectors).max(-1) / 127).astype("<f2")
        found[name] = base64.b64encode(np.rint(vectors / steps[:, None]).astype(np.int8).tobytes()).decode()
        found[f"{name}_step"] = base64.b64encode(steps.tobytes()).decode()
    file = tmp_path / "rebuilt.html"
    payload["maps"] = [{**found, "weights": None}]
    file.write_text(bundle.page({**payload, "place": "#attention?layer=6&heads=1&lock=r9"}), encoding="utf-8")
    page.goto(file.as_uri())
    page.wait_for_selector(".export-panel")
    numbers = displayed_rows(page)
    assert len(numbers) == 12
    assert all(abs(one - expected[index]) < 0.012 for index, (one,) in numbers.items())


def test_lines_are_drawn_for_the_selected_head(page: Page, studio: str) -> None:
    open_at(page, studio, text=TEXT)
    ink = """() => { const canvas = document.querySelector(".between canvas");
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
        copy.drawImage(canvas, 0, 0);
        const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
        let sum = 0; for (let i = 3; i < pixels.length; i += 4) sum += pixels[i]; return sum }"""
    first = page.evaluate(ink)
    page.get_by_role("button", name="Head 4").click()
    second = page.evaluate(ink)
    page.locator(".tokens.row button").nth(9).click()
    assert 0 < page.evaluate(ink) < second != first > 0


def test_a_long_text_on_a_narrow_screen(browser: Browser, studio: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto(f"{studio}/#attention?{urlencode({'text': 'water and people ' * 160, 'heads': 'all'})}")
    page.wait_for_selector(".export-panel")
    expect(page.locator(".tokens.row button")).to_have_count(482)
    page.wait_for_function("document.querySelector('.between canvas').clientHeight <= 1000")  # only what is visible
    expect(page.locator(".lines + .note")).to_contain_text("strongest lines of the visible part are drawn")
    last = page.locator(".tokens.row button").last
    last.scroll_into_view_if_needed()
    last.click()
    page.wait_for_function(
        """() => {
            const canvas = document.querySelector(".between canvas").getBoundingClientRect();
            const token = [...document.querySelectorAll(".tokens.row button")].at(-1).getBoundingClientRect();
            return canvas.top <= token.top && token.bottom <= canvas.bottom;
        }"""
    )
    page.close()


def test_invalid_input_shows_an_error_and_the_page_stays_usable(browser: Browser, studio: str) -> None:
    page = browser.new_page()
    page.goto(f"{studio}/#attention?text=")
    expect(page.get_by_role("alert")).to_contain_text("text is empty")
    page.get_by_label("Text", exact=True).fill("a" * 100_000)
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("at most 20,000")
    page.get_by_label("Text", exact=True).fill("fine again")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator(".tokens.row button").nth(1)).to_have_text("fine")
    assert page.get_by_role("alert").count() == 0
    page.close()


@pytest.mark.parametrize(("width", "scheme"), [pytest.param(1280, "light", marks=pytest.mark.long), (390, "dark")])
def test_the_view_is_accessible_and_fits_a_narrow_screen(
    browser: Browser, studio: str, axe: str, width: int, scheme: Any
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(f"{studio}/#attention?{urlencode({**PAIR, 'heads': '1,2,3', 'lock': 'r3'})}")
    page.wait_for_selector(".export-panel")
    for mode in ("Heads", "Model", "Neurons"):
        page.get_by_role("button", name=mode, exact=True).click()
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert (mode, serious_findings(page, axe)) == (mode, [])
    page.close()


def test_mean_and_maximum_over_heads_without_special_tokens_above_a_threshold(page: Page, studio: str) -> None:
    payload = open_at(page, studio, text=TEXT, source="mean", layer="5", lock="r9", min="0.05")
    weights = weights_of(payload)[4, :, 9]
    special = payload["maps"][0]["row_special"]
    assert [index for index, one in enumerate(special) if one] == [0, 14]

    def check(expected: NDArray[np.float64], threshold: float) -> None:
        found = displayed_rows(page)
        assert set(found) == {index for index, value in enumerate(expected) if value >= threshold}
        assert all(abs(numbers[0] - expected[index]) <= 0.001 for index, numbers in found.items())

    check(weights.mean(0), 0.05)
    expect(page.locator(".attention-legend")).to_contain_text("below 0.05 are not drawn")
    page.get_by_role("button", name="maximum").click()
    page.get_by_label("Hide below").fill("0.2")
    expect(page.locator(".weights-panel thead")).to_contain_text("max of heads")
    check(weights.max(0), 0.2)
    page.get_by_label("hide special tokens").check()
    expect(page.locator(".tokens.row button")).to_have_count(13)
    page.get_by_role("button", name="across").click()
    expect(page.locator(".tokens.row.across button[aria-pressed=true]")).to_have_text("it")
    check(weights.max(0)[1:-1], 0.2)  # rows are numbered as they are shown
    expect_url(page, "&special=hide", "&layout=across", "&min=0.2", "&source=max")


def test_rollout_and_flow_use_the_whole_color_scale(page: Page, studio: str) -> None:
    payload = open_at(page, studio, text=TEXT, source="rollout", layer="8", mode="grid")
    (found,) = payload["maps"]
    expect(page.locator(".attention-legend")).to_contain_text(
        f"{found['rollout_largest'][7]:.3f}, the smallest and largest"
    )
    page.get_by_role("button", name="flow", exact=True).click()
    expect(page.locator(".attention-legend")).to_contain_text(f"{found['flow_largest']:.3f}, the smallest and largest")
    expect(page.get_by_text("capacities of pipes")).to_be_visible()
