"""The Figure 1 view in a browser: boxes and switches work, and its numbers equal the API's."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette

from regard.checkpoints.loaded_model import LoadedModel
from regard.inference.translation.subwords import train_subwords
from regard.interpret.figure.figure import positional_encoding
from tests.inference.translation.conftest import sentences
from tests.interpret.conftest import translator
from tests.server.conftest import create_app, download, expect_url, expect_view, point_at, serious_findings, watched
from tests.server.local import local_registry

TEXT = "the film was good"
MINUS = "\u2212"
SAID = "the dog sees a red house"


@pytest.fixture(scope="module")
def figure_studio(
    page_built: None, run_app: Callable[[Starlette], str], tiny_bert_folder: Path, request: pytest.FixtureRequest
) -> str:
    """A studio with a tiny BERT and two tiny translators, one pre-norm and one post-norm, named by their languages."""
    subwords = train_subwords(sentences(40), size=290, joint=True)
    translators = {
        "tiny-en-de-pre": translator(subwords, norm_first=True).eval(),
        "tiny-en-de": translator(subwords, norm_first=False).eval(),
    }

    def load(name: str) -> Any:
        from regard.inference.load_model import load_model

        return (
            LoadedModel(name, translators[name], subwords)
            if name in translators
            else replace(load_model(tiny_bert_folder), name=name)
        )

    registry = local_registry(["tiny-bert", *translators], load=load)
    return run_app(create_app(registry))


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with watched(browser, seconds=120) as one:
        yield one


def open_at(page: Page, figure_studio: str, **parameters: str) -> dict[str, Any]:
    with expect_view(page, "figure") as payload:
        page.goto(f"{figure_studio}/#figure?{urlencode(parameters)}")
    page.wait_for_selector(".export-panel")
    return payload


def tensor(payload: dict[str, Any], box: str, name: str, layer: int = 0) -> NDArray[np.float64]:
    steps = payload["boxes"][box]["steps"]
    found = payload["tensors"][dict(steps[min(layer, len(steps) - 1)]["tensors"])[name]]
    return np.frombuffer(base64.b64decode(found["data"]), "<f2").astype(np.float64).reshape(found["shape"])


def displayed_numbers(page: Page) -> NDArray[np.float64]:
    """The numbers of the panel's table, without the columns after the ellipsis."""
    rows = page.locator(".figure-panel tbody tr").all()
    texts = [row.locator("td").all_inner_texts() for row in rows]
    read = [[text.replace("\u2212\u221e", "-inf") for text in row if "…" not in text] for row in texts]
    return np.array([[float(text) for text in row] for row in read])


def test_the_numbers_of_a_clicked_box_equal_the_apis(page: Page, figure_studio: str) -> None:
    payload = open_at(page, figure_studio, model="tiny-bert", text=TEXT)
    expect(page.locator(".figure-diagram button")).to_have_count(len(payload["boxes"]))
    assert "encoder.cross" not in payload["boxes"]
    page.get_by_role("button", name="Layer above").click()
    page.locator("label", has_text="Head").locator("select").select_option("2")
    assert np.allclose(displayed_numbers(page), tensor(payload, "encoder.attention", "weights", 1)[2], atol=6e-4)
    page.get_by_role("button", name=re.compile("^q 4 \u00d7 6 \u00d7 8")).click()
    assert np.allclose(displayed_numbers(page), tensor(payload, "encoder.attention", "q", 1)[2][:, :6], atol=6e-4)
    page.get_by_role("button", name="Feed Forward, encoder").click()
    expect(page.locator(".figure-panel h2")).to_contain_text("Feed Forward")
    assert np.allclose(displayed_numbers(page), tensor(payload, "encoder.ffn", "out", 1)[:, :6], atol=6e-4)
    expect(page.locator(".figure-panel pre")).to_have_text(payload["boxes"]["encoder.ffn"]["code"])
    expect_url(page, "layer=2", "box=encoder.ffn", "head=2")
    page.get_by_role("button", name="Feed Forward, encoder").press("ArrowUp")
    expect(page.locator(".figure-diagram button[data-box='encoder.ffn_residual']")).to_be_focused()
    expect(page.locator(".figure-panel h2")).to_contain_text("Add & Norm")
    point_at(page.locator(".heat canvas"), 1, 1, dx=-2, dy=-3)
    out = tensor(payload, "encoder.ffn_residual", "out", 1)
    expect(page.locator(".heat .note")).to_have_text(f"[SEP], dimension 31: {out[-1, -1]:.3f}")
    page.get_by_role("button", name="Softmax, encoder").click()
    words = payload["tensors"][dict(payload["boxes"]["encoder.softmax"]["steps"][0]["tensors"])["out"]]["words"]
    expect(page.locator(".figure-panel tbody td").first).to_have_text(f"{words[0][0][0]} {100 * words[0][0][1]:.1f}%")
    assert page.locator("pre", has_text="regard figure").text_content() == payload["cli"]


def test_switches_run_the_model_again(page: Page, figure_studio: str) -> None:
    whole = open_at(page, figure_studio, model="tiny-bert")
    assert whole["ablation"] is None  # the first picture does not wait for it
    expect(page.get_by_role("button", name="no mask")).to_be_disabled()
    expect(page.locator(".figure-one")).to_contain_text("an encoder has no causal mask")
    with expect_view(page, "figure") as payload:
        page.get_by_role("button", name="no scaling").click()
    assert payload["without"] == ["scaling"] and payload["text"] == whole["text"]
    expect(page.get_by_role("button", name="no scaling")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".figure-panel pre")).not_to_contain_text("math.sqrt")
    assert np.allclose(displayed_numbers(page), tensor(payload, "encoder.attention", "weights")[0], atol=6e-4)
    with expect_view(page, "figure") as payload:
        page.get_by_role("button", name="no residual").click()
    assert payload["without"] == ["scaling", "residual"]
    expect_url(page, "without=scaling%2Cresidual")
    expect(page.locator("tr.figure-current th")).to_have_text("no scaling, no residual")
    assert [one["without"] for one in payload["ablation"]["outcomes"]] == [[], ["scaling", "residual"]]
    expect(page.locator(".figure-removal table").first.locator("tbody tr")).to_have_count(2)
    with expect_view(page, "figure") as payload:
        page.get_by_role("button", name="Measure the effect of removing each part").click()
    outcomes = payload["ablation"]["outcomes"]
    assert len(outcomes) == 5
    expect_url(page, "ablation=1")
    expect(page.locator(".figure-removal table").first.locator("tbody tr")).to_have_count(len(outcomes))
    expect(page.get_by_role("button", name="Measure the effect of removing each part")).to_have_count(0)
    first, last = outcomes[0], outcomes[-1]
    change = last["loss"] - first["loss"]
    cells = page.locator("tr.figure-current td").all_inner_texts()
    assert cells[:2] == [f"{last['loss']:.3f}", f"{'+' if change >= 0 else MINUS}{abs(change):.3f}"]
    assert cells[-1] == last["output"]


def test_a_translator_has_encoder_and_decoder(page: Page, figure_studio: str) -> None:
    payload = open_at(
        page,
        figure_studio,
        model="tiny-en-de",
        text=SAID,
        target="der Hund",
        box="decoder.cross",
        tensor="k",
        ablation="1",
    )
    assert payload["target"] == "der Hund" and payload["tokens"]["decoder"][0] == "<|begin|>"
    expect(page.locator(".figure-panel h2")).to_have_text("Encoder-Decoder Attention of the decoder")
    assert np.allclose(displayed_numbers(page), tensor(payload, "decoder.cross", "k")[0][:, :6], atol=6e-4)
    assert len(displayed_numbers(page)) == len(payload["tokens"]["encoder"])
    page.get_by_role("button", name="Masked Multi-Head Attention").click()
    page.get_by_role("button", name=re.compile("^scores")).click()
    scores = displayed_numbers(page)
    assert np.array_equal(np.isinf(scores), np.triu(np.ones_like(scores), 1) == 1)
    expect(page.locator(".figure-removal")).to_contain_text("sees the token that it should predict")
    expect(page.locator(".figure-removal")).to_contain_text("over the 5 built-in sentences (from")
    spaced = [token.replace(" ", "\u2423") for token in payload["tokens"]["decoder"]]
    assert any(token.startswith("\u2423") for token in spaced)
    assert page.locator(".figure-panel tbody th").all_inner_texts() == spaced
    assert page.locator(".figure-panel thead th").all_inner_texts()[1:] == spaced
    page.get_by_role("button", name="no mask").click()
    expect(page.get_by_role("button", name="Multi-Head Attention (mask off), decoder")).to_be_visible(timeout=60_000)
    expect(page.locator(".figure-removal summary")).to_have_text("The 5 built-in sentences")


def test_the_view_opens_on_the_model_that_has_add_and_norm(page: Page, figure_studio: str) -> None:
    payload = open_at(page, figure_studio)
    assert payload["model"]["name"] == "tiny-en-de" and not payload["model"]["norm_first"]
    expect(
        page.locator(".figure-diagram button", has=page.locator("xpath=self::*[contains(@aria-label, 'Add & Norm')]"))
    ).to_have_count(5)
    expect(page.locator(".figure-one")).to_contain_text("Post-norm, as the paper draws it")
    payload = open_at(page, figure_studio, model="tiny-en-de-pre", text=SAID)
    names = [box["title"] for box in payload["boxes"].values() if box["part"] == "encoder" and box["group"] == "layer"]
    assert names == ["Norm", "Multi-Head Attention", "Add", "Norm", "Feed Forward", "Add"]
    expect(page.locator(".figure-one")).to_contain_text("The paper draws it the other way")


def test_a_token_moves_from_box_to_box(browser: Browser, page: Page, figure_studio: str) -> None:
    page.emulate_media(reduced_motion="no-preference")
    payload = open_at(page, figure_studio, model="tiny-en-de", text=SAID, row="1")
    token = page.locator(".figure-token")
    expect(token).to_have_count(0)
    page.get_by_role("button", name="Step", exact=True).click()
    expect(token).to_have_text(payload["tokens"]["encoder"][1].replace(" ", "\u2423"))
    for _ in range(2):
        page.get_by_role("button", name="Step", exact=True).click()
    expect(page.locator(".figure-diagram button[aria-pressed='true']")).to_have_attribute(
        "data-box", "encoder.attention"
    )
    first = [f"{value:.3f}" for value in tensor(payload, "encoder.attention", "out")[1][:3]]
    expect(page.locator(".figure-caption")).to_contain_text(f"leaves it as {', '.join(first)}, …")
    page.get_by_role("button", name="Play").click()
    expect(page.locator(".figure-diagram button[aria-pressed='true']")).to_have_attribute(
        "data-box", "encoder.ffn", timeout=20_000
    )
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="End").click()
    expect(token).to_have_count(0)
    context = browser.new_context(reduced_motion="reduce")
    still = context.new_page()
    still.goto(f"{figure_studio}/#figure?{urlencode({'model': 'tiny-bert', 'text': TEXT})}")
    still.get_by_role("button", name="Step", exact=True).click(timeout=60_000)
    assert still.get_by_role("button", name="Play").count() == 0
    assert still.locator(".figure-token").evaluate("token => getComputedStyle(token).transitionDuration") == "0s"
    context.close()


def test_the_residual_stream_has_the_lengths_of_the_vectors(page: Page, figure_studio: str) -> None:
    payload = open_at(page, figure_studio, model="tiny-en-de", text=SAID, mode="stream", row="2", layers="1")
    expect(page.get_by_role("img", name="Residual stream of 1 layers")).to_be_visible()
    rows = [row.locator("td").all_inner_texts() for row in page.locator("tbody tr").all()]
    boxes = (
        "encoder.attention_residual",
        "encoder.ffn_residual",
        "decoder.attention_residual",
        "decoder.cross_residual",
        "decoder.ffn_residual",
    )
    assert len(rows) == len(boxes)
    for row, box in zip(rows, boxes, strict=True):
        vectors = [tensor(payload, box, name)[2] for name in ("x", "sublayer", "out")]
        assert [float(text) for text in row[1:4]] == pytest.approx([np.linalg.norm(one) for one in vectors], abs=0.02)


def test_positional_encodings_follow_the_formula(page: Page, figure_studio: str, tmp_path: Path) -> None:
    open_at(page, figure_studio, model="tiny-bert", text=TEXT, mode="positions")
    expect(page.get_by_role("img", name="Sinusoids, 50 positions \u00d7 128 dimensions, interleaved")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("Learned positions of .*tiny-bert.*, 50 \u00d7 32"))).to_be_visible()
    page.get_by_role("button", name="512 \u00d7 20").click()
    expect(page.get_by_role("img", name="Sinusoids, 20 positions \u00d7 512 dimensions, halves")).to_be_visible()
    page.get_by_role("spinbutton", name="Dimension").fill("64")
    page.get_by_role("spinbutton", name="Dimension").press("Tab")
    for layout in ("halves", "interleaved"):
        page.get_by_role("button", name=layout, exact=True).click()
        rows = list(csv.DictReader(io.StringIO(download(page, "CSV", tmp_path).read_text(encoding="utf-8"))))
        found = np.zeros((20, 64))
        for row in rows:
            found[int(row["position"]), int(row["dimension"])] = float(row["value"])
        assert np.allclose(found, positional_encoding(64, 20, layout).matrix, atol=1e-5)  # type: ignore[arg-type]
    expect_url(page, "width=64", "mode=positions")


def test_downloaded_files_contain_the_displayed_numbers(
    page: Page, browser: Browser, figure_studio: str, tmp_path: Path
) -> None:
    payload = open_at(page, figure_studio, model="tiny-bert", text="the <b>film</b>", without="residual", layer="2")
    files = {name: download(page, name, tmp_path) for name in ("CSV", "JSON", "SVG", "PNG", "HTML")}
    rows = list(csv.DictReader(io.StringIO(files["CSV"].read_text(encoding="utf-8"))))
    weights = tensor(payload, "encoder.attention", "weights", 1)
    assert len(rows) == weights.size
    for row in rows[:: len(rows) // 20]:
        expected = weights[int(row["head"]), int(row["row"]), int(row["column"])]
        assert abs(float(row["value"]) - expected) <= 1e-4 and row["layer"] == "2"
    svg = files["SVG"].read_text(encoding="utf-8")
    assert "Feed Forward" in svg and "&lt;b&gt;" in svg and "<b>" not in svg
    assert files["PNG"].read_bytes().startswith(b"\x89PNG")
    before = page.locator(".figure-panel").inner_text()
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    alone = context.new_page()
    alone.goto(files["HTML"].as_uri())
    alone.wait_for_selector(".export-panel")
    assert alone.locator(".figure-panel").inner_text() == before
    expect(alone.get_by_role("button", name="no scaling")).to_be_disabled()
    expect(alone.locator(".figure-one")).to_contain_text("This file contains one run of the model")
    alone.get_by_role("button", name="Linear, encoder").click()
    assert "box=encoder.linear" in alone.url and alone.locator("main b").count() == 0
    context.close()


def test_invalid_input_shows_an_error(browser: Browser, figure_studio: str) -> None:
    page = browser.new_page()
    page.goto(f"{figure_studio}/#figure?{urlencode({'model': 'tiny-bert', 'text': TEXT, 'without': 'mask'})}")
    expect(page.get_by_role("alert")).to_contain_text("cannot remove 'mask'", timeout=60_000)
    page.close()


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_view_is_accessible_and_fits_a_narrow_screen(
    browser: Browser, figure_studio: str, axe: str, width: int, scheme: Any
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(120_000)
    page.goto(f"{figure_studio}/#figure?{urlencode({'model': 'tiny-en-de', 'text': SAID, 'without': 'scaling'})}")
    page.wait_for_selector(".figure-diagram button")
    for mode in ("Figure", "Residual stream", "Positional encodings"):
        page.get_by_role("button", name=mode, exact=True).click()
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert (mode, serious_findings(page, axe)) == (mode, [])
    page.close()
