"""The ablation view in a browser: heads are removed and restored, and its numbers equal the result's."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

import regard
from regard.inference.load_model import load_model
from regard.interpret.ablation import ablate, sweep_heads
from regard.interpret.attribution.probe import MAX_MASKED_TOKENS, pretrained_probe, probe_model, subsample_targets
from regard.tasks.fine_tuned_model import save_fine_tuned
from regard.text import Tokenizer
from regard.verbs.ablate import MAX_SWEEP_TARGETS
from tests.inference.folders import tiny_gpt
from tests.interpret.classifiers import deciding

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, expect

from tests.server.conftest import expect_url, open_share, serious_findings

expect.set_options(timeout=30_000)

TEXT = "the good film was a dull day for them and for <b>him</b>"
CLASSED = "it is a good day for them"


@pytest.fixture(scope="module")
def folders(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    save_fine_tuned(deciding(Tokenizer.open(tiny_bert_folder), 3, unused_head=True), folder / "classifier")
    gpt = tiny_gpt(tmp_path_factory.mktemp("gpt"))
    return {"bert": str(tiny_bert_folder), "gpt": str(gpt), "classifier": str(folder / "classifier")}


def request_ablation(client: TestClient, **arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = client.post("/v1/ablate/view", json={"at": "auto", **arguments}).json()
    return found


def open_at_token(page: Page, address: str, **parameters: str) -> None:
    page.goto(f"{address}/#ablation?{urlencode(parameters)}")
    page.wait_for_selector(".export-panel")


def head(page: Page, name: str) -> Any:
    return page.get_by_role("button", name=re.compile(rf"Head {re.escape(name)}(,|$)"))


def test_clicking_a_head_removes_and_restores_it(page: Page, address: str, folders: dict[str, str]) -> None:
    open_at_token(page, address, model=folders["bert"], text=TEXT)
    expect(page.locator(".ablation-removed")).to_contain_text("Nothing is removed")
    probe = probe_model(load_model(folders["bert"]), TEXT, at="masked")
    expected = {
        (one.layer, one.head): one.strength for one in sweep_heads(subsample_targets(probe, MAX_SWEEP_TARGETS)).ranked
    }
    for (layer, number), strength in expected.items():
        title = head(page, f"{layer}.{number}").get_attribute("title")
        assert title == f"{layer}.{number} alone: {strength:.3f} nats"
    head(page, "1.1").click()
    head(page, "1.1").press("ArrowDown")
    expect(head(page, "2.1")).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    expect(page.locator(".ablation-removed")).to_contain_text("heads 1.1,2.2")
    effects = ablate(probe, heads=[(1, 1), (2, 2)]).effects
    tokens = page.locator(".ablation-text button")
    expect(tokens).to_have_count(len(effects))
    strongest = max(range(len(effects)), key=lambda number: effects[number].strength)
    expect(tokens.nth(strongest)).to_have_attribute("title", f"{effects[strongest].strength:.3f} nats")
    for number, effect in enumerate(effects):
        assert tokens.nth(number).get_attribute("title") == f"{effect.strength:.3f} nats"
        predictions = tokens.nth(number).locator(".ablation-prediction").all_inner_texts()
        for text, word, share in zip(
            predictions,
            (effect.before, effect.after),
            (effect.likeliest[0].before, effect.successors[0].after),
            strict=True,
        ):
            assert text.split() == [word, f"{share:.1%}"]
    changed = sum(effect.before != effect.after for effect in effects)
    expect(page.locator(".ablation-sum")).to_contain_text(f"at {changed} of {len(effects)} tokens")
    expect_url(page, "heads=1.1%2C2.2")
    head(page, "1.1").click()
    expect(page.locator(".ablation-removed")).to_contain_text("Removed: heads 2.2.")
    page.get_by_role("button", name="restore all").click()
    expect(page.locator(".ablation-removed")).to_contain_text("Nothing is removed")


BOXES = "(cell, parts) => parts.map(part => cell.querySelector(part).getBoundingClientRect().toJSON())"


def test_bars_start_at_the_left_and_do_not_cover_the_digits(page: Page, address: str, folders: dict[str, str]) -> None:
    open_at_token(page, address, model=folders["classifier"], text=CLASSED)
    expect(page.locator(".ablation-changes thead th")).to_have_text(["label", "probability"])
    (effect,) = ablate(probe_model(load_model(folders["classifier"]), CLASSED), heads=[(1, 1)]).effects
    cells = page.locator(".ablation-changes tbody td")
    expect(cells).to_have_count(len(effect.likeliest))
    for cell, one in zip(cells.all(), effect.likeliest, strict=True):
        # The boxes of one layout: the page may be laid out again between two questions.
        track, bar, digits = cell.evaluate(BOXES, (".ablation-bar", ".ablation-bar span", ".ablation-digits"))
        assert bar["x"] == track["x"] and bar["width"] == pytest.approx(track["width"] * one.before, abs=1)
        assert track["x"] + track["width"] <= digits["x"]
    head(page, "1.1").click()
    expect(page.locator(".ablation-changes thead th")).to_have_text(["label", "before", "after"])


def test_whole_layers(page: Page, address: str, folders: dict[str, str]) -> None:
    open_at_token(page, address, model=folders["bert"], text=TEXT, at="plain")
    page.get_by_role("button", name="All heads of layer 2").click()
    expect(page.locator(".ablation-removed")).to_contain_text("heads 2.*")
    page.get_by_role("button", name="skip layer 1").click()
    expect(page.locator(".ablation-removed")).to_contain_text("layers 1")
    probe = probe_model(load_model(folders["bert"]), TEXT, at="plain")
    effect = ablate(probe, heads=[(2, number) for number in range(4)], layers=[1]).effects[4]
    token = page.locator(".ablation-text button").nth(4)
    expect(token).to_have_attribute("title", f"{effect.strength:.3f} nats")
    token.click()
    rows = page.locator(".ablation-changes").first.locator("tbody tr").all()
    displayed = [[float(cell.get_attribute("title") or "nan") for cell in row.locator("td").all()] for row in rows]
    assert displayed == [pytest.approx([one.before, one.after], rel=1e-4) for one in effect.likeliest[:6]]
    expect_url(page, "place=4", "heads=2.*", "layers=1")
    page.locator(".choices").get_by_label("Predict").select_option("masked")
    hidden = ablate(
        probe_model(load_model(folders["bert"]), TEXT, at="masked"), heads=[(2, n) for n in range(4)], layers=[1]
    )
    expect(page.locator(".ablation-text button").nth(4)).to_have_attribute(
        "title", f"{hidden.effects[4].strength:.3f} nats"
    )
    expect_url(page, "at=masked")


def test_a_gpt_and_a_classifier(page: Page, address: str, folders: dict[str, str]) -> None:
    open_at_token(page, address, model=folders["gpt"], text="the good film day", heads="1.0")
    probe = pretrained_probe(*regard.load(folders["gpt"]), "the good film day", at="plain")
    effects = ablate(probe, heads=[(1, 0)]).effects
    tokens = page.locator(".ablation-text button")
    expect(tokens).to_have_count(len(effects))
    expect(page.locator(".ablation-text li").first).to_have_text("the")
    assert tokens.last.locator(".ablation-token").inner_text() == "…"
    assert tokens.last.get_attribute("title") == f"{effects[-1].strength:.3f} nats"
    open_at_token(page, address, model=folders["classifier"], text=CLASSED, heads="1.1")
    expect(page.locator("blockquote")).to_have_text(CLASSED)
    (effect,) = ablate(probe_model(load_model(folders["classifier"]), CLASSED), heads=[(1, 1)]).effects
    rows = page.locator(".ablation-changes tbody tr").all()
    found = {
        row.locator("th").inner_text(): [float(one.get_attribute("title") or "nan") for one in row.locator("td").all()]
        for row in rows
    }
    expected = {one.output: pytest.approx([one.before, one.after], rel=1e-4) for one in effect.likeliest}
    assert found == expected


def test_downloaded_files(page: Page, browser: Browser, address: str, folders: dict[str, str], tmp_path: Path) -> None:
    open_at_token(page, address, model=folders["bert"], text=TEXT, heads="1.1", place="2")
    files = {}
    for name in ("HTML", "SVG", "PNG", "CSV", "JSON"):
        open_share(page)
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name, exact=True).click()
        files[name] = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(files[name])
    probe = probe_model(load_model(folders["bert"]), TEXT, at="masked")
    effects = ablate(probe, heads=[(1, 1)]).effects
    rows = list(csv.DictReader(io.StringIO(files["CSV"].read_text("utf-8"))))
    positions = [row for row in rows if row["what"] == "position"]
    assert [float(row["divergence"]) for row in positions] == pytest.approx([one.strength for one in effects], rel=1e-4)
    assert sum(row["what"] == "head" for row in rows) == 8
    assert json.loads(files["JSON"].read_text("utf-8"))[0]["name"] == effects[0].target
    assert "without heads 1.1" in files["SVG"].read_text("utf-8")
    assert files["PNG"].read_bytes()[:4] == b"\x89PNG"
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    alone = context.new_page()
    alone.goto(files["HTML"].as_uri())
    alone.wait_for_selector(".export-panel")
    assert alone.locator(".ablation-text").inner_text() == page.locator(".ablation-text").inner_text()
    assert alone.get_by_role("button", name="skip layer 1").count() == 0
    head(alone, "2.2").click()  # without a server, the effect of removing each single head is still available
    expect(alone.locator(".ablation-removed")).to_contain_text("without head 2.2 alone")
    few = subsample_targets(probe, MAX_SWEEP_TARGETS)
    one = next(one for one in sweep_heads(few).ranked if (one.layer, one.head) == (2, 2))
    expect(alone.locator(".ablation-text button")).to_have_count(MAX_SWEEP_TARGETS)
    titles = [button.get_attribute("title") for button in alone.locator(".ablation-text button").all()]
    assert titles == [f"{strength:.3f} nats" for strength in one.strengths]
    context.close()


def test_the_route_accepts_valid_and_rejects_invalid_arguments(client: TestClient, folders: dict[str, str]) -> None:
    assert request_ablation(client, model=folders["bert"], text=TEXT)["at"] == "masked"
    assert request_ablation(client, model=folders["bert"], text=TEXT, at="plain")["at"] == "plain"
    assert request_ablation(client, model=folders["bert"], text="the _ film", at="blanks")["positions"] == [2]
    for arguments, error in (
        ({"model": folders["bert"], "text": TEXT, "heads": "7.0"}, "this model has layers 1 to 2; 0 is the embeddings"),
        ({"model": folders["bert"], "text": TEXT, "layers": "x"}, "expected its number from 1"),
        ({"model": folders["bert"], "text": TEXT, "at": "never"}, "at is 'never'; expected"),
        ({"model": folders["bert"], "text": TEXT, "text_b": "b"}, "a second text is for a fine-tuned model"),
        ({"model": folders["bert"], "text": "a " * (MAX_MASKED_TOKENS + 10), "at": "masked"}, "shorten it"),
        ({"model": folders["gpt"], "text": "the", "at": "masked"}, "'masked' is for a BERT"),
        ({"model": folders["classifier"], "text": " "}, "empty"),
        ({"model": "nothing", "text": "a"}, "the studio has no model"),
    ):
        assert error in request_ablation(client, **arguments)["error"], arguments


def test_heads_are_probed_once_per_text(
    client: TestClient, folders: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    swept_texts: list[str] = []
    from regard.interpret import ablation

    def count_sweeps(probe: Any) -> Any:
        swept_texts.append(probe.texts[0])
        return original(probe)

    original = ablation.sweep_heads
    monkeypatch.setattr(ablation, "sweep_heads", count_sweeps)
    first = request_ablation(client, model=folders["bert"], text="a good day")
    second = request_ablation(client, model=folders["bert"], text="a good day", heads="1.0")
    assert (first["sweep"], swept_texts) == (second["sweep"], ["a good day"])
    for number in range(5):
        request_ablation(client, model=folders["bert"], text=f"day {number}")
    request_ablation(client, model=folders["bert"], text="a good day")
    assert swept_texts.count("a good day") == 2  # evicted from the cache meanwhile


@pytest.mark.parametrize(("width", "scheme"), [pytest.param(1280, "light", marks=pytest.mark.long), (390, "dark")])
@pytest.mark.parametrize("name", ["bert", "gpt", "classifier"])
def test_the_view_is_accessible_and_fits_a_narrow_screen(
    browser: Browser, address: str, folders: dict[str, str], name: str, width: int, scheme: Any, axe: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    text = {"bert": TEXT, "gpt": "the good film day", "classifier": CLASSED}[name]
    open_at_token(page, address, model=folders[name], text=text, heads="1.0,1.1")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert serious_findings(page, axe) == []
    page.close()
