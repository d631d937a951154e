"""The translation view in a browser, step by step: every number equals the library's."""

from __future__ import annotations

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

from regard.inference.generation.beam_search import Beam
from regard.inference.translation.forced_decoding import force_targets
from regard.inference.translation.translator import AlignmentHeads, load_translator
from regard.interpret.translation import CrossAttention, TranslationSteps, translate_in_steps

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Locator, Page, expect

from tests.server.conftest import addresses, download, point_at, serious_findings, watched
from tests.server.generations import visible
from tests.server.translators import FRENCH, MODELS, TEXT, write_translators


@pytest.fixture(scope="module")
def folders(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {"plain": str(tiny_bert_folder), **write_translators(tmp_path_factory.mktemp("translators"))}


def open_at(page: Page, studio: str, **parameters: str) -> None:
    page.goto(f"{studio}/#translation?{urlencode({'source': TEXT, 'num_beams': '3', **parameters})}")
    page.wait_for_selector(".export-panel, .unsuited")


def library(folder: str, text: str = TEXT, width: int = 3) -> TranslationSteps:
    return translate_in_steps(load_translator(folder), text, beam=Beam(num_beams=width, num_return_sequences=width))


def attention_of(found: TranslationSteps, number: int) -> CrossAttention:
    attention = found.hypotheses[number].attention
    assert attention is not None
    return attention


def values_of(found: TranslationSteps, layer: int, head: int) -> NDArray[np.float32]:
    assert found.encoder is not None
    return found.encoder.states if found.encoder.values is None else found.encoder.values[layer, head]


def read(cells: Locator) -> list[float]:
    return [float(text.replace("\N{MINUS SIGN}", "-")) for text in cells.all_inner_texts()]


def check_table(page: Page, found: TranslationSteps, *, number: int, step: int, layer: int, head: int, d: int) -> None:
    """Checks that the five sub-steps on the page equal the library's for this step."""
    attention, values = attention_of(found, number), values_of(found, layer, head)
    weights = attention.weights[layer, head, step]
    assert page.locator(".attention-steps tbody th").all_inner_texts() == list(map(visible, found.source.tokens))
    np.testing.assert_allclose(
        read(page.locator(".attention-steps .score")), attention.scores[layer, head, step], atol=0.0006
    )
    np.testing.assert_allclose(read(page.locator(".attention-steps .weight")), weights, atol=0.0006)
    np.testing.assert_allclose(read(page.locator(".attention-steps .value")), values[:, d], atol=0.0006)
    products = read(page.locator(".attention-steps .product"))
    np.testing.assert_allclose(products, weights * values[:, d], atol=0.0001)
    [context] = read(page.locator(".attention-steps .context"))
    assert context == pytest.approx(float(attention.context[layer, head, step, d]), abs=0.0001)
    assert sum(products) == pytest.approx(context, abs=0.0001 * len(products))


@pytest.mark.long
def test_the_slider_moves_with_the_arrow_keys(page: Page, address: str, folders: dict[str, str]) -> None:
    open_at(page, address, model=folders["transformer"], layer="2", head="1", d="5")
    found = library(folders["transformer"])
    hypothesis = found.hypotheses[0]
    heading, slider = page.locator(".candidates h2"), page.get_by_role("slider")
    check_table(page, found, number=0, step=0, layer=1, head=1, d=5)
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(heading).to_contain_text(f"Time step 4 of {len(hypothesis.steps)}:")
    page.locator(".steps button").nth(6).click()  # also when the focus is not in a field
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    token, probability = hypothesis.steps[4].token, hypothesis.steps[4].probability
    expect(heading).to_contain_text(f"Time step 5 of {len(hypothesis.steps)}: {visible(token)} {probability:.1%}")
    expect(page).to_have_url(re.compile("step=4(&|$)"))
    expect(slider).to_have_value("5")
    check_table(page, found, number=0, step=4, layer=1, head=1, d=5)
    rows = page.locator(".candidates tbody tr").all()
    chosen, likeliest = (
        (hypothesis.steps[4].token, hypothesis.steps[4].probability),
        [(one.token, one.probability) for one in hypothesis.steps[4].likeliest],
    )
    expected_rows = likeliest if chosen in likeliest else [chosen, *likeliest]
    texts = [[row.locator("th").inner_text(), row.locator(".number").inner_text()] for row in rows]
    assert texts == [[visible(token), f"{share:.2%}"] for token, share in expected_rows]
    assert page.locator(".steps button").all_inner_texts() == list(map(visible, hypothesis.pieces.tokens))
    expect(page.locator(".substeps h2")).to_have_text(
        f"Encoder-decoder attention: time step 5 of {len(hypothesis.steps)}"
    )


def test_the_mean_attention_used_for_alignments(page: Page, address: str, folders: dict[str, str]) -> None:
    open_at(page, address, model=folders["transformer"], step="2", d="11", head="mean")
    found = library(folders["transformer"])
    attention = attention_of(found, 0)
    assert load_translator(folders["transformer"]).alignment_heads == AlignmentHeads(1, (0, 1))
    assert set(page.locator(".attention-steps .score").all_inner_texts()) == {"\N{EN DASH}"}
    np.testing.assert_allclose(
        read(page.locator(".attention-steps .weight")), attention.weights[0, :, 2].mean(0), atol=0.0006
    )
    # With 2 heads of size 8, index 11 is index 3 of head 1.
    products = attention.weights[0, 1, 2] * values_of(found, 0, 1)[:, 3]
    np.testing.assert_allclose(read(page.locator(".attention-steps .product")), products, atol=0.0001)
    assert read(page.locator(".attention-steps .context")) == pytest.approx(
        [float(attention.context[0, 1, 2, 3])], abs=0.0001
    )
    page.get_by_role("button", name="Head 0", exact=True).click()
    page.locator('[name="d"]').fill("3")
    check_table(page, found, number=0, step=2, layer=0, head=0, d=3)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dot", "gets a score: s · h."),
        ("general", "gets a score: s · W h."),
        ("additive", "gets a score: v · tanh(W s + U h)."),
    ],
)
def test_recurrent_models(page: Page, address: str, folders: dict[str, str], name: str, words: str) -> None:
    open_at(page, address, model=folders[name], source=FRENCH, step="3", d="2", translation="1")
    found = library(folders[name], FRENCH)
    check_table(page, found, number=1, step=3, layer=0, head=0, d=2)
    narration = page.locator(".explanations").inner_text()
    assert words in narration and ("Luong\N{RIGHT SINGLE QUOTATION MARK}s recipe" in narration) is (name != "additive")
    page.get_by_role("button", name="2. Score").click()
    assert page.locator(".explanations li").count() == 2 and page.locator(".attention-steps .weight").count() == 0
    recipe = "deck" if name == "additive" else "luong"
    expect(page.locator(".substeps")).to_contain_text(f"(score {name}, recipe {recipe})")
    queries = {"dot": "at this step:", "general": "at this step:", "additive": "of the previous step, as W s:"}
    expect(page.locator(".query")).to_contain_text(queries[name])


def test_the_view_opens_on_one_head_with_a_number_in_every_sub_step(
    page: Page, address: str, folders: dict[str, str]
) -> None:
    open_at(page, address, model=folders["transformer"])
    found = library(folders["transformer"])
    assert found.alignment_heads is not None
    check_table(page, found, number=0, step=0, layer=0, head=found.alignment_heads.sharpest, d=0)
    for sub, count in (("2. Score", 2), ("3. Softmax", 3), ("4. Multiply", 4), ("5. Sum", 5)):
        page.get_by_role("button", name=sub).click()
        expect(page.locator(".explanations li")).to_have_count(count)
        assert page.locator(".attention-steps .product").count() == (len(found.source.tokens) if count > 3 else 0)


def test_time_steps_are_counted_as_in_the_lectures(page: Page, address: str, folders: dict[str, str]) -> None:
    """An LSTM reads the words of the source in the first time steps."""
    open_at(page, address, model=folders["dot"], source=FRENCH)
    found = library(folders["dot"], FRENCH)
    read, written = len(FRENCH.split()), len(found.hypotheses[0].pieces.words)
    expect(page.locator(".slider")).to_contain_text(f"Time step {read + 1} of {read + written}")
    first = page.locator(".steps .read").first
    assert first.inner_text() == f"1{FRENCH.split()[0]}"


@pytest.mark.parametrize("name", ["transformer", "general"])
def test_a_given_translation(page: Page, address: str, folders: dict[str, str], name: str) -> None:
    target = "I am the market."
    open_at(page, address, model=folders[name], target=target, alignment="hard", head="mean")
    [forced] = force_targets(load_translator(folders[name]), TEXT, [target])
    assert forced.alignment is not None
    expect(page.locator(".both")).to_contain_text(target)
    expect(page.locator(".choices").first).to_contain_text(
        f"given, not searched; mean log-probability {forced.translation.score:.3f} per token"
    )
    expect(page.locator(".pharaoh")).to_have_text(forced.alignment.pharaoh())
    page.locator("[name=target]").fill("")
    page.get_by_role("button", name="Translate").click()
    expect(page.locator(".choices").first).to_contain_text("of the beam")


def test_another_hypothesis_of_the_beam(page: Page, address: str, folders: dict[str, str]) -> None:
    open_at(page, address, model=folders["general"], step="1")
    found = library(folders["general"])
    options = page.locator('[name="translation"] option').all_inner_texts()
    assert options == [f"{n + 1}. {' '.join(one.translation.text.split())}" for n, one in enumerate(found.hypotheses)]
    page.locator('[name="translation"]').select_option("2")
    one = found.hypotheses[2].translation
    expect(page.locator(".translation")).to_contain_text(
        f"3 of 3 of the beam; score {one.score:.3f}, log-probability {one.log_probability:.3f}"
    )
    check_table(page, found, number=2, step=1, layer=0, head=0, d=0)


@pytest.mark.parametrize("name", ["transformer", "general"])
def test_alignments_equal_the_librarys(page: Page, address: str, folders: dict[str, str], name: str) -> None:
    open_at(page, address, model=folders[name], alignment="hard", head="mean")
    translator, found = load_translator(folders[name]), library(folders[name])
    hypothesis = found.hypotheses[0]
    expected = translator.align(TEXT, hypothesis.translation.ids)
    expect(page.locator(".pharaoh")).to_have_text(expected.pharaoh())
    hard = [int(pair.split("-")[0]) for pair in expected.pharaoh().split()]
    several = [
        f"{word} → {', '.join(expected.target[row] for row, column in enumerate(hard) if column == position)}"
        for position, word in enumerate(expected.source)
        if hard.count(position) > 1
    ]
    assert page.locator(".many li").all_inner_texts() == several
    page.get_by_role("button", name="soft", exact=True).click()
    canvas = page.locator(".alignment canvas")
    label = f"Soft alignment of {len(expected.target)} target by {len(expected.source)} source words"
    expect(canvas).to_have_attribute("aria-label", label)
    point_at(canvas, 1, 1, dx=-8, dy=-8)
    last = f"{expected.target[-1]} attends to {expected.source[-1]}: {expected.weights[-1][-1]:.3f}"
    expect(page.locator(".alignment .note")).to_have_text(last)
    point_at(canvas, 1, 1, dx=-8, dy=-8, click=True)
    expect(page).to_have_url(re.compile(rf"step={hypothesis.pieces.word_indices.index(len(expected.target) - 1)}(&|$)"))
    page.get_by_role("button", name="subwords").click()
    rows, columns = len(hypothesis.steps), len(found.source.tokens)
    expect(canvas).to_have_attribute("aria-label", f"Soft alignment of {rows} target by {columns} source subwords")


def test_a_model_without_attention(page: Page, address: str, folders: dict[str, str], tmp_path: Path) -> None:
    open_at(page, address, model=folders["none"])
    expect(page.locator(".translation")).to_contain_text("No encoder-decoder attention")
    assert page.locator(".attention-steps, .alignment").count() == 0
    hypothesis = library(folders["none"]).hypotheses[0]
    rows = list(csv.DictReader(io.StringIO(download(page, "CSV", tmp_path).read_text(encoding="utf-8"))))
    assert [float(row["probability"]) for row in rows] == pytest.approx(
        [s.probability for s in hypothesis.steps], abs=1e-6
    )


def test_the_view_selects_a_translator(page: Page, address: str, folders: dict[str, str]) -> None:
    page.goto(f"{address}/#translation")
    page.wait_for_selector(".export-panel")
    expect(page.locator("select[name=model]")).to_have_value(next(folders[name] for name in MODELS))
    assert page.locator("select[name=model] option").all_inner_texts() == [folders[name] for name in MODELS]


def test_a_model_that_does_not_translate(page: Page, address: str, folders: dict[str, str]) -> None:
    open_at(page, address, model=folders["plain"])
    expect(page.locator(".unsuited")).to_contain_text(f"{folders['plain']} does not translate")
    names = page.locator(".unsuited a").all_inner_texts()
    assert names == [folders[name] for name in MODELS]
    page.get_by_role("link", name=folders["general"]).click()
    expect(page.locator(".attention-steps")).to_be_visible()
    page.get_by_role("link", name="Je suis étudiant: 7 time steps").click()
    expect(page.locator(".both")).to_contain_text("I am a student")


def test_downloaded_files_contain_the_displayed_numbers(
    page: Page, address: str, folders: dict[str, str], tmp_path: Path
) -> None:
    open_at(page, address, model=folders["transformer"], layer="2", head="0", translation="1")
    found = library(folders["transformer"])
    attention, hypothesis = attention_of(found, 1), found.hypotheses[1]
    files = {name: download(page, name, tmp_path) for name in ("CSV", "JSON", "SVG", "PNG")}
    rows = list(csv.DictReader(io.StringIO(files["CSV"].read_text(encoding="utf-8"))))
    assert len(rows) == len(hypothesis.steps) * len(found.source.tokens)
    records = json.loads(files["JSON"].read_text(encoding="utf-8"))
    for row, record in zip(rows, records, strict=True):
        step, source = int(row["step"]) - 1, int(row["source"])
        assert (row["target_token"], row["source_token"]) == (
            hypothesis.pieces.tokens[step],
            found.source.tokens[source],
        )
        assert (
            float(row["weight"]) == record["weight"] == pytest.approx(attention.weights[1, 0, step, source], abs=1e-6)
        )
        assert float(row["score"]) == record["score"] == pytest.approx(attention.scores[1, 0, step, source], abs=2e-6)
        assert record["probability"] == pytest.approx(hypothesis.steps[step].probability, abs=1e-6)
    assert files["PNG"].read_bytes().startswith(b"\x89PNG")
    svg = files["SVG"].read_text(encoding="utf-8")
    assert addresses(svg) == {"http://www.w3.org/2000/svg"}
    assert "Encoder-decoder attention: layer 2, head 0" in svg and "5. sum: the context vector" in svg
    assert f">{attention.context[1, 0, 0, 0]:.4f}<" in svg


def test_an_exported_file_works_from_disk(
    page: Page, browser: Browser, address: str, folders: dict[str, str], tmp_path: Path
) -> None:
    open_at(page, address, model=folders["additive"], step="4", translation="1", alignment="hard")
    before = page.locator(".current").inner_text()
    file = download(page, "HTML", tmp_path)
    assert all(urlsplit(one).hostname == "www.w3.org" for one in addresses(file.read_text(encoding="utf-8")))
    with watched(browser) as alone:
        alone.context.set_offline(True)
        alone.goto(file.as_uri())
        alone.wait_for_selector(".export-panel")
        assert alone.locator(".current").inner_text() == before
        assert alone.locator(".translation a").count() == 0
        alone.get_by_role("slider").press("ArrowRight")
        pieces = library(folders["additive"]).hypotheses[1].pieces
        number = len(TEXT.split()) + pieces.word_indices[5] + 1
        expect(alone.locator(".candidates h2")).to_contain_text(f"Time step {number} of")


@pytest.mark.long
@pytest.mark.parametrize(
    ("width", "scheme"),
    [(1280, "light"), (390, "dark"), (390, "light")],
)
@pytest.mark.parametrize("name", ["transformer", "additive", "plain"])
def test_the_view_is_accessible_and_fits_a_narrow_screen(
    browser: Browser, address: str, folders: dict[str, str], axe: str, width: int, scheme: Any, name: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    open_at(page, address, model=folders[name], alignment="hard", head="1")
    wide = page.evaluate("""() => [...document.querySelectorAll("main *")]
        .filter(one => !one.closest(".wide, .try, pre"))
        .filter(one => one.getBoundingClientRect().right > innerWidth).map(one => one.outerHTML.slice(0, 100))""")
    assert (page.evaluate("document.documentElement.scrollWidth"), wide) == (width, [])
    assert serious_findings(page, axe) == []
    page.close()


@pytest.mark.long
@pytest.mark.parametrize("text", ["😀 🏳️‍🌈", "שלום עולם", "<img src=x onerror=alert(1)><b>x</b>", "a\0b", "\n-x\n"])
def test_markup_is_shown_as_text(page: Page, address: str, folders: dict[str, str], text: str) -> None:
    open_at(page, address, model=folders["transformer"], source=text)
    assert page.locator("main img, main b").count() == 0
    tokens = library(folders["transformer"], text).source.tokens
    assert page.locator(".attention-steps tbody th bdi").all_text_contents() == list(map(visible, tokens))
