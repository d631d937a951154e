"""The generation view in a browser: streaming, stopping, continuing; its numbers equal the library's."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.applications import Starlette

import regard
from regard.inference.generation.sampling import Sampling
from regard.interpret.generation import next_tokens
from tests.inference.generation.folders import chat_folder, gpt_folder, t5_folder
from tests.server.local import local_registry

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Locator, Page, expect

from tests.server.conftest import create_app, expect_url, open_share, serious_findings
from tests.server.generations import PROMPT, Gate, candidate_cells, generated, token_texts, visible

expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(gpt_folder(tmp_path_factory.mktemp("gpt"), positions=128))


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(t5_folder(tmp_path_factory.mktemp("t5")))


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(chat_folder(tmp_path_factory.mktemp("chat")))


@pytest.fixture(scope="module")
def app(page_built: None, gpt: str, t5: str, chat: str, tiny_bert_folder: Path) -> Starlette:
    registry = local_registry([str(tiny_bert_folder), gpt, t5, chat])
    return create_app(registry)


@pytest.fixture(scope="module")
def studio_address(app: Starlette, run_app: Callable[[Starlette], str]) -> str:
    return run_app(app)


def open_at(page: Page, studio: str, **parameters: str) -> None:
    page.goto(f"{studio}/#generation?{urlencode(parameters)}")
    expect(page.locator(".generation-column [role=status]").last).to_contain_text(
        re.compile("requested|ended the text|context")
    )


def field(page: Page, label: str) -> Locator:
    page.locator(".generation-folded").evaluate("settings => { settings.open = true }")
    return page.locator(".generation-form").get_by_label(label, exact=True)


def pieces(page: Page, column: int = 0) -> list[str]:
    found = page.locator(".generation-column").nth(column).locator(".generation-text [role=button]")
    texts: list[str] = found.evaluate_all("all => all.map(one => one.textContent)")
    return texts


def displayed_candidates(page: Page, column: int = 0) -> list[list[str | None]]:
    """The cells of the candidates: scaled, cumulative and sampling probability, as far as displayed."""
    rows = (
        page.locator(".generation-column").nth(column).locator(".generation-bars tbody tr:not(.generation-more)").all()
    )
    return [[cell.get_attribute("title") for cell in row.locator("td").all()] for row in rows]


def test_the_view_selects_a_model_that_generates(page: Page, studio_address: str, gpt: str) -> None:
    page.goto(f"{studio_address}/#generation")
    expect(page.locator(".generation-column h2")).to_have_text(gpt)
    expect(field(page, "Prompt")).to_have_value("This is a story about me and my brothers")
    expect(page.locator(".generation-caveat")).to_contain_text("stochastic parrots")
    field(page, "Prompt list").select_option("The first law of robotics")
    expect(field(page, "Prompt")).to_have_value("Recite the first law of robotics")
    expect(field(page, "Top-p")).to_have_value("0.9")
    expect(field(page, "Temperature")).to_have_value("0.8")


def test_without_a_model_that_generates(
    page: Page, page_built: None, tiny_bert_folder: Path, run_app: Callable[[Starlette], str]
) -> None:
    registry = local_registry([str(tiny_bert_folder)])
    page.goto(f"{run_app(create_app(registry))}/#generation")
    expect(page.locator("main")).to_contain_text("None of the studio's models generates text")
    expect(page.locator("main")).to_contain_text("does not generate text")


def test_a_text_and_its_candidates(page: Page, studio_address: str, gpt: str) -> None:
    open_at(page, studio_address, model=gpt, prompt="x", max_new_tokens="4")
    field(page, "Prompt").fill(PROMPT)
    field(page, "Tokens").fill("12")
    field(page, "Temperature, slider").fill("1.1")
    field(page, "Top-p").fill("0.7")
    field(page, "Seed").fill("2")
    page.get_by_role("button", name="Run", exact=True).click()
    generation = generated(gpt, tokens=12, temperature=1.1, top_p=0.7, seed=2)
    expect(page.locator(".generation-text [role=button]")).to_have_count(len(generation.tokens))
    assert pieces(page) == token_texts(generation)
    assert page.locator(".generation-text").evaluate("one => one.textContent").startswith(PROMPT)
    page.locator(".generation-text [role=button]").nth(5).click()
    assert displayed_candidates(page) == candidate_cells(generation, 5)
    expect_url(page, "lock=5")
    num_available = page.locator(".generation-available").count()
    assert num_available == sum(bar.removed_by is None for bar in generation.tokens[5].candidates)
    page.keyboard.press("ArrowRight")
    assert displayed_candidates(page) == candidate_cells(generation, 6)
    expect(page.locator(".generation-text [role=button]").nth(6)).to_be_focused()
    assert page.locator(".generation-bars thead th").all_inner_texts()[2:] == ["Sum", "Filtered"]
    here = generation.tokens[6]
    more = here.nucleus_size - sum(one.removed_by is None for one in here.candidates)
    if more:
        expect(page.locator(".generation-more")).to_contain_text(f"and {more} more candidates")
    expect(page.locator(".generation-bars p").first).to_contain_text(
        f"{generation.tokens[6].nucleus_size} of {generation.tokens[6].vocab_size} tokens with"
    )
    command = page.locator("pre", has_text="regard generate")
    assert (command.text_content() or "").count("--top-p 0.7 --seed 2 ") == 1
    page.reload()
    expect(page.locator(".generation-text [role=button]")).to_have_count(len(generation.tokens))
    assert pieces(page) == token_texts(generation) and displayed_candidates(page) == candidate_cells(generation, 6)
    page.get_by_role("button", name="Another text").click()
    expect(page.locator("pre", has_text="regard generate")).not_to_have_text(re.compile("--seed 2 "))


def test_sliders_reshape_the_candidates_and_a_token_links_to_its_attention(
    page: Page, studio_address: str, gpt: str
) -> None:
    open_at(page, studio_address, model=gpt, prompt=PROMPT, max_new_tokens="6", lock="0")
    before = displayed_candidates(page)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.get_by_label("What if: temperature").fill("1.5")
    page.get_by_label("What if: top-p").fill("0.6")
    expect(page.locator(".generation-what-if [role=status]")).to_contain_text("Computed in the page")
    exact = next_tokens(*regard.load(gpt), PROMPT, sampling=Sampling(temperature=1.5, top_p=0.6))
    found = displayed_candidates(page)
    assert found != before and not requests
    for (scaled, cumulative, sampling), one in zip(found, exact.candidates, strict=False):
        assert float((scaled or "").split(";")[0]) == pytest.approx(one.scaled_probability, rel=0.01)
        assert float(cumulative or "nan") == pytest.approx(one.cumulative_probability, rel=0.01)
        assert float(sampling or "nan") == pytest.approx(one.sampling_probability, rel=0.02)
    page.get_by_role("button", name="as generated").click()
    assert displayed_candidates(page) == before
    page.get_by_role("link", name="its attention").click()
    expect(page.locator(".tokens.row button[aria-pressed=true]")).to_be_visible()
    assert page.locator(".tokens.row button").last.get_attribute("aria-pressed") == "true"


def test_streaming_and_stopping(
    page: Page, browser: Browser, studio_address: str, gpt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = generated(gpt, tokens=40, temperature=1.5, seed=4)
    gate = Gate(monkeypatch, 15)
    arguments = {"model": gpt, "prompt": PROMPT, "temperature": "1.5", "seed": "4", "max_new_tokens": "40"}
    page.goto(f"{studio_address}/#generation?{urlencode(arguments)}")
    assert gate.reached.wait(30)
    expect(page.locator(".generation-column [role=status]")).to_have_text("Generating …")
    expect(page.locator(".generation-cursor")).to_be_visible()
    expect(
        page.locator(".generation-text [role=button]").nth(9)
    ).to_be_visible()  # an incomplete character waits for its remaining bytes
    page.get_by_role("button", name="Stop").click()
    assert gate.left.wait(30)
    gate.opened.set()
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    expect(page.locator(".generation-column [role=status]")).to_have_text(re.compile(r"^Stopped after \d+ tokens\.$"))
    count = page.locator(".generation-text [role=button]").count()
    assert 10 <= count <= 15 and pieces(page) == token_texts(whole)[:count]
    page.wait_for_url(f"**max_new_tokens={count}**")
    expect(page.locator("pre", has_text="regard generate")).to_contain_text(f"--max-new-tokens {count} ")
    expect(page.locator(".generation-column [role=status]")).to_have_text(f"Stopped after {count} tokens.")
    expect(field(page, "Tokens")).to_have_value("40")  # Run generates the whole text
    assert pieces(page) == token_texts(whole)[:count]
    alone = open_exported(page, browser, tmp_path)
    assert "".join(pieces(alone)[: count - 1]) == "".join(token_texts(whole)[: count - 1])
    assert len(pieces(alone)) == count
    alone.context.close()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".generation-text [role=button]")).to_have_count(len(whole.tokens))
    assert pieces(page) == token_texts(whole)


def test_two_settings_side_by_side(page: Page, studio_address: str, gpt: str, t5: str) -> None:
    open_at(page, studio_address, model=gpt, prompt="the film", max_new_tokens="10")
    field(page, "two side by side").check()
    field(page, "Temperature (second text)").fill("0")
    page.get_by_role("button", name="Run", exact=True).click()
    first, second = generated(gpt, "the film", tokens=10), generated(gpt, "the film", tokens=10, temperature=0.0)
    expect(page.locator(".generation-column")).to_have_count(2)
    expect(page.locator(".generation-column").nth(1).locator(".generation-text [role=button]")).to_have_count(
        len(second.tokens)
    )
    assert (pieces(page), pieces(page, 1)) == (token_texts(first), token_texts(second))
    page.locator(".generation-text [role=button]").nth(2).click()
    assert (displayed_candidates(page), displayed_candidates(page, 1)) == (
        candidate_cells(first, 2),
        candidate_cells(second, 2),
    )
    field(page, "Model (second text)").select_option(t5)
    field(page, "Temperature (second text)").fill("0.8")
    page.get_by_role("button", name="Run", exact=True).click()
    answer = generated(t5, "the film", tokens=10)
    expect(page.locator(".generation-column").nth(1).locator("h2")).to_have_text(t5)
    expect(page.locator(".generation-column").nth(1).locator(".generation-text [role=button]")).to_have_count(
        len(answer.tokens)
    )
    assert pieces(page, 1) == token_texts(answer)
    # The second column does not continue a text.
    assert page.locator(".generation-column").nth(1).locator(".generation-bars tbody button").count() == 0
    expect_url(page, "second=on", "b_model")


def test_the_beam_search_tree_and_its_branches(page: Page, studio_address: str, gpt: str) -> None:
    open_at(page, studio_address, model=gpt, prompt="the film", num_beams="3", max_new_tokens="5")
    generation = generated(gpt, "the film", beam=3, tokens=5)
    assert pieces(page) == token_texts(generation) and generation.trace is not None
    (row,) = generation.trace["rows"]
    scores = page.locator(".decoding tbody tr td:nth-child(2)").all_inner_texts()[:3]
    assert scores == [f"{one['score']:.3f}" for one in row["results"]]
    assert displayed_candidates(page) == candidate_cells(generation, 4)
    heads = page.locator(".generation-bars thead th").all_inner_texts()
    assert heads == ["Token", "Probability", "Sum"]  # beam search does not sample
    every = [(choice, one) for step in row["steps"] for choice in step["choices"] for one in choice["candidates"]]
    choice, one = next(pair for pair in every if pair[0]["node"] and "child" in pair[1])
    page.locator(".tree g[role=button]", has_text=f"kept as node {one['child']}").focus()
    page.keyboard.press("Enter")
    parents = {one["child"]: (choice["node"], one["token"]) for choice, one in every if "child" in one}
    ids, node = [one["token"]], choice["node"]
    while node:
        node, token = parents[node]
        ids.insert(0, token)
    tokenizer = regard.load(gpt)[1]
    assert tokenizer is not None and len(ids) > 1
    prompt_ids = tokenizer.encode("the film", add_special_tokens=False).ids
    expect(field(page, "Prompt")).to_have_value(tokenizer.decode([*prompt_ids, *ids]))
    prompt = field(page, "Prompt").input_value()
    expect(page.locator(".generation-column [role=status]")).to_contain_text("tokens")
    expect(page.locator(".generation-text > .muted")).to_have_text(prompt)
    again = generated(gpt, prompt, beam=3, tokens=5)
    expect(page.locator(".generation-text [role=button]")).to_have_count(len(again.tokens))
    assert pieces(page) == token_texts(again)
    page.go_back()
    expect(field(page, "Prompt")).to_have_value("the film")


def test_the_tree_is_one_tab_stop(page: Page, studio_address: str, gpt: str) -> None:
    open_at(page, studio_address, model=gpt, prompt="the film", num_beams="3", max_new_tokens="5")
    boxes = page.locator(".tree g[role=button]")
    assert boxes.count() > 30 and page.locator(".tree [tabindex='0'], .tree[tabindex='0']").count() == 1
    boxes.first.focus()
    tree = page.locator(".tree g[role=button]:focus")

    def position() -> tuple[float, float]:
        found = tree.locator("rect").first
        return float(found.get_attribute("x") or "nan"), float(found.get_attribute("y") or "nan")

    x, y = position()
    page.keyboard.press("ArrowDown")
    assert position() == (x, y + 30)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert position() == (x, y)
    for column in range(1, 5):
        page.keyboard.press("ArrowRight")
        assert position()[0] == x + 176 * column
    page.keyboard.press("ArrowRight")
    assert position()[0] == x + 176 * 4
    page.keyboard.press("End")
    last = position()[1]
    page.keyboard.press("Home")
    assert position()[1] == y < last
    assert page.locator(".tree [tabindex='0']").count() == 1
    page.keyboard.press("Tab")
    assert page.locator(".tree :focus").count() == 0
    page.keyboard.press("Shift+Tab")
    assert position() == (x + 176 * 4, y)


def test_the_form_describes_its_keys_and_buttons(page: Page, studio_address: str, gpt: str) -> None:
    open_at(page, studio_address, model=gpt, prompt="the film", max_new_tokens="3")
    another = page.get_by_role("button", name="Another text")
    expect(another).to_be_enabled()
    field(page, "Beams (1: sampling)").fill("2")
    expect(another).to_be_disabled()
    field(page, "two side by side").check()
    expect(another).to_be_disabled()
    field(page, "Beams (1: sampling) (second text)").fill("1")
    expect(another).to_be_enabled()
    field(page, "Temperature (second text)").fill("0")
    expect(another).to_be_disabled()
    field(page, "two side by side").uncheck()
    expect(field(page, "Prompt")).to_have_accessible_description(re.compile(r"^Enter .*new line.*Ctrl\+Enter runs"))
    field(page, "Beams (1: sampling)").fill("1")
    field(page, "Prompt").fill("the day")
    field(page, "Prompt").press("Enter")
    field(page, "Prompt").press("Control+Enter")
    expect(page.locator(".generation-text > .muted")).to_have_text(re.compile(r"^the day\n$"))


def test_bytes_of_an_incomplete_character_are_shown_in_hex(page: Page, studio_address: str, gpt: str) -> None:
    """The tiny model generates random bytes."""
    open_at(
        page, studio_address, model=gpt, prompt="the film", max_new_tokens="3", temperature="2", top_p="1", lock="0"
    )
    generation = generated(gpt, "the film", tokens=3, temperature=2.0, top_p=1.0)
    texts = [bar.text for bar in generation.tokens[0].candidates]
    assert any(re.fullmatch(r"\\x[89A-F][0-9A-F]", text) for text in texts)
    assert page.locator(".generation-bars tbody th").all_inner_texts() == [visible(text) for text in texts]


def test_a_candidate_starts_a_branch(page: Page, studio_address: str, gpt: str) -> None:
    open_at(page, studio_address, model=gpt, prompt="the film", max_new_tokens="6", temperature="0", lock="0")
    generation = generated(gpt, "the film", tokens=6, temperature=0.0)
    bar = next(bar for bar in generation.tokens[0].candidates if bar.text.isascii() and bar.text.isalpha())
    page.get_by_role("button", name=f"continue with {json.dumps(bar.text)}", exact=True).click()
    expect(field(page, "Prompt")).to_have_value("the film" + bar.text)
    expect_url(page, absent="lock")


def open_exported(page: Page, browser: Browser, folder: Path) -> Page:
    open_share(page)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="HTML", exact=True).click()
    file = folder / "page.html"
    waiting.value.save_as(file)
    alone = browser.new_context(offline=True, viewport={"width": 1280, "height": 900}).new_page()
    alone.goto(file.as_uri())
    alone.wait_for_selector(".export-panel")
    return alone


def test_downloaded_files(page: Page, browser: Browser, studio_address: str, gpt: str, tmp_path: Path) -> None:
    open_at(page, studio_address, model=gpt, prompt=PROMPT, max_new_tokens="5", second="on", b_num_beams="2", lock="2")
    first, second = generated(gpt, tokens=5), generated(gpt, beam=2, tokens=5)
    files = {}
    for name in ("SVG", "PNG", "CSV", "JSON"):
        open_share(page)
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name, exact=True).click()
        files[name] = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(files[name])
    rows = [one for one in csv.DictReader(io.StringIO(files["CSV"].read_text("utf-8"))) if one["kind"] == "candidate"]
    for text, generation in (("1", first), ("2", second)):
        found = [float(row["scaled_probability"]) for row in rows if row["text"] == text]
        assert found == [bar.scaled_probability for token in generation.tokens for bar in token.candidates]
    assert {one["kind"] for one in json.loads(files["JSON"].read_text("utf-8"))} == {"candidate", "search"}
    svg = files["SVG"].read_text("utf-8")
    assert "the &lt;b&gt;film" in svg
    heads = re.findall(">(Token|Probability|Sum|Filtered)<", svg)
    assert heads == ["Token", "Probability", "Sum", "Filtered", "Token", "Probability", "Sum"]
    assert files["PNG"].read_bytes()[:4] == b"\x89PNG"
    alone = open_exported(page, browser, tmp_path)
    for column, generation in enumerate((first, second)):
        assert pieces(alone, column) == pieces(page, column) == token_texts(generation)
        assert displayed_candidates(alone, column) == candidate_cells(generation, 2)
    assert alone.locator(".tree rect").count() == page.locator(".tree rect").count() > 5
    assert alone.locator(".generation-form, .tree [role=button], .generation-bars button").count() == 0
    alone.locator(".generation-text [role=button]").nth(1).click()
    assert displayed_candidates(alone) == candidate_cells(first, 1)
    alone.context.close()


def test_a_bad_link_can_be_corrected(browser: Browser, studio_address: str, gpt: str) -> None:
    page = browser.new_page()
    arguments = {"model": gpt, "prompt": "the film", "top_p": "7", "max_new_tokens": "3"}
    page.goto(f"{studio_address}/#generation?{urlencode(arguments)}")
    expect(page.get_by_role("alert")).to_contain_text("top_p is '7'")
    page.locator("form.request-form textarea[name=top_p]").fill("0.5")
    page.locator("form.request-form").get_by_role("button", name="Run").click()
    expect(page.locator(".generation-text [role=button]")).to_have_count(3)
    expect(page.locator("form.request-form")).to_be_hidden()
    page.close()


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_view_is_accessible_and_fits_a_narrow_screen(
    browser: Browser, studio_address: str, gpt: str, axe: str, width: int, scheme: Any
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    for extra in ({"top_k": "6"}, {"second": "on", "b_num_beams": "3"}):
        open_at(page, studio_address, model=gpt, prompt="the film", max_new_tokens="6", lock="1", **extra)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert serious_findings(page, axe) == []
    page.close()


def test_chat_continues_the_conversation_with_the_same_bars(page: Page, studio_address: str, chat: str) -> None:
    settings = {"max_new_tokens": 6, "temperature": 0.7, "seed": 2}
    open_at(
        page,
        studio_address,
        model=chat,
        prompt="the film?",
        chat="on",
        system="Be <i>brief</i>.",
        **{name: str(value) for name, value in settings.items()},
    )
    first = regard.generate("the film?", model=chat, chat=True, system="Be <i>brief</i>.", candidates=True, **settings)
    assert first.tokens is not None and pieces(page) == [one.text or one.name for one in first.tokens]
    assert page.locator(".generation-chat p").all_inner_texts() == ["Be <i>brief</i>.", "the film?"]
    expect(page.locator("pre", has_text="regard generate").first).to_contain_text("--chat")
    page.get_by_label("Message", exact=True).fill("the day?")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".generation-chat p")).to_have_count(4)
    messages = [
        {"role": "system", "content": "Be <i>brief</i>."},
        {"role": "user", "content": "the film?"},
        {"role": "assistant", "content": first.texts[0].text},
        {"role": "user", "content": "the day?"},
    ]
    second = regard.generate(messages, model=chat, chat=True, candidates=True, **settings)
    assert second.tokens is not None
    expect(page.locator(".generation-text [role=button]")).to_have_count(len(second.tokens))
    assert pieces(page) == [one.text or one.name for one in second.tokens]
