"""The embedding views in a browser (senses, map, feature walk): their numbers equal the library's."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

import regard
from regard.errors import InputError
from regard.events import drain
from regard.server.models.client_verbs import run_verb
from tests.server.local import verb_host

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, expect

from tests.server.conftest import download, expect_url, expect_view, open_share, point_at, serious_findings

MODEL = "regard-bert"
TRAINS = ["He took a train.", "They train every day.", "The train was late.", "😀 <b>train</b> & 'run'"]
LINES = ["the soup was hot", "fresh bread and soup", "the team won", "a game of two teams", "he sang <i>a song</i>"]
LABELS = ["food", "food", "sport", "sport", "music"]
FILMS = [f"a {word} film number {n}" for n in range(8) for word in ("good", "bad")]


def open_at(page: Page, studio: str, view: str, **parameters: str) -> None:
    page.goto(f"{studio}/#{view}?{urlencode(parameters)}")
    page.wait_for_selector(".export-panel")


def table(page: Page, selector: str, cells: str = "td") -> list[list[str]]:
    return [row.locator(cells).all_inner_texts() for row in page.locator(f"{selector} tbody tr").all()]


def test_a_word_in_several_texts(page: Page, studio: str) -> None:
    page.goto(f"{studio}/#senses")
    page.wait_for_selector(".export-panel")
    page.get_by_label("Word", exact=True).fill("train")
    page.locator("textarea[name=texts]").fill("\n".join(TRAINS))
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator(".contexts li")).to_have_count(4)
    found = regard.senses("train", TRAINS, model=[MODEL], device="cpu")
    planes, similarity = found.contexts[MODEL].planes, np.array(found.similarity[MODEL])
    assert [mark.inner_text() for mark in page.locator(".contexts mark").all()] == ["train"] * 4
    assert page.locator(".contexts li").nth(3).inner_text().startswith("😀 <b>train</b> & 'run'")
    assert np.allclose(np.array(table(page, ".cosines"), dtype=float), similarity[-1], atol=0.00051)
    page.locator(".layers button").nth(2).click()
    expect_url(page, "layer=2")
    assert np.allclose(np.array(table(page, ".cosines"), dtype=float), similarity[2], atol=0.00051)
    explained = 100 * sum(planes[2].explained)
    expect(page.get_by_role("heading", name=f"Layer 2: this plane keeps {explained:.1f}%")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect_url(page, "layer=3")
    off = similarity[3][~np.eye(4, dtype=bool)].mean()
    assert f"cosine {off:.3f}" in page.locator(".layers button").nth(3).inner_text()


def test_a_missing_word_is_an_error(browser: Browser, studio: str) -> None:
    page = browser.new_page()  # the browser itself logs rejected requests as console errors
    page.goto(f"{studio}/#senses?{urlencode({'word': 'boat', 'texts': 'a boat' + chr(10) + 'no'})}")
    expect(page.get_by_role("alert")).to_contain_text("text 2, 'no', does not have the word 'boat'")
    page.close()


def test_the_map_and_its_neighbors(page: Page, studio: str) -> None:
    typed = "\n".join(f"{line} | {label}" for line, label in zip(LINES, LABELS, strict=True))
    open_at(page, studio, "map", texts=typed, neighbors="3", at="2")
    found = regard.sentence_map(list(zip(LINES, LABELS, strict=True)), model=MODEL, neighbors=3, device="cpu")
    rows = table(page, ".neighbors", "th, td")
    near = found.sentences[2].neighbors
    assert [row[1] for row in rows] == [f"{LINES[one.index]} [{LABELS[one.index]}]" for one in near]
    assert np.allclose([float(row[0]) for row in rows], [one.cosine for one in near], atol=0.00051)
    expect(page.get_by_text(f"The plane keeps {100 * sum(found.explained):.1f}%")).to_be_visible()
    assert page.locator(".legend li").all_inner_texts() == ["● food", "▲ sport", "■ music"]
    page.locator(".neighbors button").first.click()
    assert page.locator(".selected").inner_text() == f"{LINES[near[0].index]} [{LABELS[near[0].index]}]"
    page.get_by_label("Find").fill("SOUP")
    expect(page.get_by_text("2 found")).to_be_visible()


def test_zoom_labels_and_projections_of_the_map(page: Page, studio: str) -> None:
    texts = "\n".join(f"{text} | {label}" for label in ("a", "b") for text in ("the king", "the sea", "a dog", "rain"))
    open_at(page, studio, "map", texts=texts, projection="tsne", layers="-1", pooling="mean", neighbors="2")
    expect(page.locator("main")).to_contain_text("The plane is that of t-SNE")
    plot = page.locator(".plane")
    page.get_by_role("button", name="Zoom in").click()
    expect_url(page, "zoom=1.40")
    plot.focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    expect_url(page, "zoom=1.96", "center=0.5", absent="center=0.500")
    plot.hover()
    page.mouse.wheel(0, -300)
    expect(page.locator(".choices", has_text="Zoom")).to_contain_text("5.3")
    page.keyboard.press("0")
    expect(page.get_by_role("button", name="Zoom out")).to_be_disabled()
    expect_url(page, absent="zoom")
    page.locator(".legend.labels button").first.click()
    expect_url(page, "label=a")


# Until nothing was drawn for half a second's frames.
AT_REST = """async () => {
    for (let quiet = 0, seen = -1; quiet < 30; quiet++) {
        if (window.texts.length !== seen) [seen, quiet] = [window.texts.length, 0];
        await new Promise(requestAnimationFrame);
    }
}"""


@pytest.mark.long
def test_points_glide_from_layer_to_layer(browser: Browser, studio: str) -> None:
    """Every frame in between is drawn; with reduced motion there is none."""
    parameters = urlencode({"word": "train", "texts": "He took a train.\nHe likes to train.\nThe train was late."})
    drawn = {}
    for motion in ("no-preference", "reduce"):
        page = browser.new_page(reduced_motion=motion)
        page.goto(f"{studio}/#senses?{parameters}")
        page.locator(".plane canvas").wait_for()
        page.evaluate(
            """() => {
                window.texts = [];
                const draw = CanvasRenderingContext2D.prototype.fillText;
                CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
                    if (String(text).startsWith("1 ")) window.texts.push(text);
                    return draw.call(this, text, ...rest);
                };
            }"""
        )
        for layer in (2, 4, 6):
            page.get_by_role("button", name=f"Layer {layer}").click()
            page.evaluate(AT_REST)
        texts = page.evaluate("window.texts")
        assert set(texts) == {"1 … took a train."}  # labels are the words around
        drawn[motion] = len(texts)
        page.close()
    assert drawn["no-preference"] > drawn["reduce"]


def test_hovering_over_the_map(page: Page, studio: str) -> None:
    """The points are centered in the box, with one scale for both axes."""
    open_at(page, studio, "map", texts="\n".join(LINES))
    found = regard.sentence_map([(line, None) for line in LINES], model=MODEL, device="cpu")
    points = np.array([one.point for one in found.sentences])
    page.locator(".plane").scroll_into_view_if_needed()
    canvas = page.locator(".plane canvas[role=img]")
    canvas.hover(trial=True)
    width, height = canvas.evaluate("one => [one.clientWidth, one.clientHeight]")
    low, high = points.min(0), points.max(0)
    scale = min((width - 68) / (high - low)[0], (height - 68) / (high - low)[1])
    for place in (0, 3, 4):
        dx, dy = (points[place] - (low + high) / 2) * scale
        point_at(canvas, 0.5, 0.5, dx=dx + 2, dy=-dy - 2)
        expect(page.locator(".tip")).to_have_text(LINES[place])
    page.mouse.down()
    page.mouse.up()
    expect(page.locator(".selected")).to_have_text(LINES[4])
    expect_url(page, "at=4")


def test_a_file_chosen_by_the_user(page: Page, studio: str, tmp_path: Path) -> None:
    """The browser samples lines at random if the file is too large, and keeps the header."""
    path = tmp_path / "large.tsv"
    lines = [f"a {'good' if n % 2 else 'bad'} film, number {n} {'so ' * 30}\t{n % 2}" for n in range(4000)]
    path.write_text("\n".join(["sentence\tlabel", *lines]), encoding="utf-8")
    open_at(page, studio, "features", data="\n".join(f"{text}|{text.split()[1]}" for text in FILMS), layers="0")
    with expect_view(page, "features") as payload:
        page.locator("input[type=file]").set_input_files(path)
    assert payload["total"] < 4000 and len(payload["examples"]) == 500
    assert set(payload["counts"]) == {"0", "1"}
    assert {text + "\t" + label for text, label in payload["examples"]} <= set(lines)
    sampling_note = (
        f"500 of {payload['total']:,} texts were sampled at random (seed 0); {payload['total'] - 500:,} are left out"
    )
    expect(page.get_by_text(sampling_note)).to_be_visible()
    expect(page.get_by_text(f"{payload['total'] + 1:,} of 4,001 lines were sampled at random")).to_be_visible()


def test_the_feature_walk_step_by_step(page: Page, studio: str) -> None:
    labels = [text.split()[1] for text in FILMS]
    typed = "\n".join(f"{text} | {label}" for text, label in zip(FILMS, labels, strict=True))
    open_at(page, studio, "features", data=typed, pooling="cls", layers="-1")
    found = regard.features(data=list(zip(FILMS, labels, strict=True)), model=MODEL, device="cpu")
    assert found.unmasked is not None
    assert table(page, ".pipeline", "th, td") == [
        [text, label] for text, label in zip(FILMS[:5], labels[:5], strict=True)
    ]
    for expected in (found.tokens, found.ids, found.padded, found.mask):
        page.get_by_role("button", name="Next →").click()
        assert table(page, ".pipeline") == [[str(value) for value in row] for row in expected]
    page.get_by_role("button", name="Next →").click()
    description = page.locator(".pipeline section p").inner_text()
    assert [int(size.replace(",", "")) for size in re.findall(r"\b[\d,]+\b", description)[:3]] == list(found.hidden)
    page.keyboard.press("ArrowRight")
    rows = table(page, ".pipeline")
    for row, vector, label in zip(rows, found.features, labels, strict=False):
        assert np.allclose([float(value) for value in (*row[:4], row[5])], [*vector[:4], vector[-1]], atol=0.000051)
        assert row[6] == label
    page.get_by_role("button", name="9 Score").click()
    assert page.locator(".bars strong").all_inner_texts() == [
        f"{found.masked.guess:.1f}%",
        *(f"{one.mean:.1f} ± {one.deviation:.1f}%" for one in (found.masked, found.unmasked)),
    ]
    folds = table(page, ".pipeline")[0]
    assert folds[:5] == [f"{fold:.1f}%" for fold in found.masked.folds] and folds[-1] == f"{found.masked.accuracy:.1f}%"
    expect_url(page, "step=9")


@pytest.mark.long
@pytest.mark.parametrize(
    ("view", "parameters"),
    [
        ("senses", {"word": "train", "texts": "\n".join(TRAINS)}),
        ("map", {"texts": "\n".join(f"{a}\t{b}" for a, b in zip(LINES, LABELS, strict=True))}),
        ("features", {"data": "\n".join(f"{text}|{text.split()[1]}" for text in FILMS)}),
    ],
)
def test_downloaded_files(page: Page, studio: str, tmp_path: Path, view: str, parameters: dict[str, str]) -> None:
    open_at(page, studio, view, **parameters)

    def downloaded_content(kind: str) -> str:
        path = download(page, kind, tmp_path)
        return path.read_text(encoding="utf-8") if kind != "PNG" else str(path.stat().st_size)

    rows = list(csv.DictReader(io.StringIO(downloaded_content("CSV"))))
    records = json.loads(downloaded_content("JSON"))
    assert [row["text"] for row in rows] == [record["text"] for record in records]
    assert len(rows) == {"senses": 4, "map": 5, "features": 16}[view]
    if view == "map":
        assert [row["label"] for row in rows] == LABELS
        first = [
            one.neighbors[0]
            for one in regard.sentence_map([(line, None) for line in LINES], model=MODEL, device="cpu").sentences
        ]
        assert np.allclose([float(row["cosine_1"]) for row in rows], [one.cosine for one in first], atol=2e-6)
        assert [int(row["neighbor_1"]) - 1 for row in rows] == [one.index for one in first]
    picture = downloaded_content("SVG")
    assert picture.startswith("<svg") and "<b>" not in picture and "<i>" not in picture
    assert int(downloaded_content("PNG")) > 3000
    exported = downloaded_content("HTML")
    assert set(re.findall(r"https?://[\w.-]+", exported)) <= {"http://www.w3.org"}
    page.context.set_offline(True)
    page.goto((tmp_path / f"regard-{view}.html").as_uri())
    expect(page.locator("pre").first).to_contain_text(f"regard {view}")
    expect(page.locator("input[type=file]")).to_have_count(0)


def test_no_cell_of_a_csv_file_is_a_formula(page: Page, studio: str, tmp_path: Path) -> None:
    formulas = ['=HYPERLINK("http://x")', "+1 for the film", "-2+3", "@SUM(A1)", "\N{FULLWIDTH EQUALS SIGN}1"]
    texts = [*formulas, "-0.5", "+1e3", "a plain = day"]
    open_at(page, studio, "map", texts="\n".join(texts))

    def cells() -> list[dict[str, str]]:
        path = download(page, "CSV", tmp_path)
        return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))

    rows = cells()
    assert [row["text"] for row in rows] == [*(f"'{text}" for text in formulas), "-0.5", "+1e3", "a plain = day"]
    expect(page.locator(".files [role=status]")).to_contain_text("before 5 cells")
    numbers = [value for row in rows for name, value in row.items() if name in ("x", "y")]
    assert any(value.startswith("-") for value in numbers) and all(isinstance(float(value), float) for value in numbers)
    open_share(page)
    page.get_by_label("exact CSV cells").check()
    assert [row["text"] for row in cells()] == texts
    expect(page.locator(".files [role=status]")).to_have_text("CSV file saved.")


@pytest.mark.long
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", ["senses", "map?at=3", "features?step=all"])
def test_the_view_is_accessible_and_fits_a_narrow_screen(
    browser: Browser, axe: str, studio: str, place: str, width: int, scheme: Any
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(f"{studio}/#{place}")
    page.wait_for_selector(".export-panel")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert serious_findings(page, axe) == []
    page.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": "x" * (300_001)}, "at most 300,000"),
        ({"texts": "a\nb", "neighbors": "many"}, "neighbors is 'many'"),
        ({"texts": 3}, "texts is 3"),
        ({"texts": " "}, "there are no sentences; give one per line"),
    ],
)
def test_invalid_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        drain(run_verb(verb_host("regard-bert"), "map", arguments))
