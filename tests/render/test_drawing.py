"""SVG and PNG drawings of results: their content is complete and self-contained."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError, RegardError
from regard.interpret.ablation import ablate, sweep_heads
from regard.interpret.attention.maps import AttentionMaps, AttentionRecord, MapKind, TokenAxis
from regard.interpret.attribution.probe import pretrained_probe, task_probe
from regard.interpret.faithfulness import measure_faithfulness
from regard.interpret.figure.figure import figure_of
from regard.render import drawing
from regard.render.drawing import png, svg
from regard.text import Tokenizer
from tests.interpret.classifiers import deciding

SVG = "{http://www.w3.org/2000/svg}"
TEXT = "it is a good day for them"

pytestmark = pytest.mark.usefixtures("page_built")


def record(
    tokens: tuple[str, ...], *, layers: int = 2, heads: int = 3, kind: MapKind = "encoder", **more: Any
) -> AttentionRecord:
    count = len(tokens)
    axis = TokenAxis(tokens, tuple(range(count)), (0,) * count)
    weights = np.zeros((layers, heads, count, count), dtype=np.float32)
    for head in range(heads):  # head n attends n tokens ahead, and a little to the first
        for row in range(count):
            weights[:, head, row, (row + head) % count] += 0.75
            weights[:, head, row, 0] += 0.25
    maps = AttentionMaps(
        kind=kind,
        layers=list(range(1, layers + 1)),
        heads=list(range(heads)),
        causal=False,
        scale=None,
        rows=axis,
        columns=axis,
        weights=weights,
        query=None,
        key=None,
        is_self_attention=True,
    )
    return AttentionRecord(family="bert", texts=["text"], maps=[maps], **more)


def draw(one: AttentionRecord, *, layer: int | None = None, head: int | None = None) -> ElementTree.Element:
    return ElementTree.fromstring(svg(one.select(kind=None, layer=layer, head=head).drawing_data()).encode())


def caption_of(root: ElementTree.Element) -> list[str]:
    (caption,) = (one for one in root.iter(f"{SVG}g") if one.get("class") == "caption")
    return ["".join(one.itertext()) for one in caption]


def texts_of(root: ElementTree.Element) -> list[str]:
    """The texts of the picture, without its caption."""
    texts = ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]
    return texts[: len(texts) - len(caption_of(root))]


def lines_of(root: ElementTree.Element) -> list[dict[str, str]]:
    """The groups of lines of one style, without those of the legend."""
    groups = [one for one in root.iter(f"{SVG}g") if one.get("stroke-width", "3") != "3"]
    return [{**one.attrib, "paths": " ".join(path.get("d", "") for path in one)} for one in groups]


def raster_of(element: ElementTree.Element) -> NDArray[np.uint8]:
    """The opacities of an embedded image."""
    content = base64.b64decode(element.get("href", "").removeprefix("data:image/png;base64,"))
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGBA"))[..., 3]


FOUND = record(("[CLS]", "a", "b", "[SEP]"))


def test_one_head() -> None:
    root = draw(FOUND, layer=1, head=2)
    opacities = {line["stroke-opacity"]: line["paths"].count("M") for line in lines_of(root)}
    assert sorted(opacities.values()) == [1, 3, 3] and opacities["1"] == 1  # weights of 1, 0.75 and 0.25
    assert len({line["stroke"] for line in lines_of(root)}) == 1
    assert texts_of(root)[0] == "encoder attention, layer 1, head 2"
    assert texts_of(root)[1:] == ["", *FOUND.maps[0].rows.tokens, *FOUND.maps[0].rows.tokens]


@pytest.mark.parametrize("heads", [3, 12, 32])
def test_heads_of_a_layer_differ_in_color_or_dash(heads: int) -> None:
    root = draw(record(("a", "b", "c"), heads=heads), layer=1)
    styles = {(line["stroke"], line.get("stroke-dasharray")) for line in lines_of(root)}
    assert len(styles) == heads
    assert set(map(str, range(heads))) <= set(texts_of(root))
    assert not any("same color" in text for text in texts_of(root))


def test_heads_with_equal_color_and_dash_are_reported() -> None:
    root = draw(record(("a", "b"), heads=33), layer=1)
    assert any("Heads 32 apart have the same color and dash" in text for text in texts_of(root))


def test_every_head_has_a_small_map() -> None:
    images = list(draw(FOUND).iter(f"{SVG}image"))
    assert len(images) == 6 + 1  # and the first again at full size
    weights = (np.sqrt(np.rint(FOUND.maps[0].weights[0, 2] * 255) / 255) * 255).round()
    assert np.abs(raster_of(images[2]) - weights).max() <= 1


def test_the_map_of_a_long_text_is_downsampled_and_keeps_its_diagonal() -> None:
    small, large = draw(record(tuple(f"w{number}" for number in range(512)), layers=1, heads=1)).iter(f"{SVG}image")
    assert raster_of(small).shape == (128, 128) and raster_of(large).shape == (512, 512)
    assert (np.diag(raster_of(small)) > 200).all()


def test_patches_over_the_image() -> None:
    image = np.full((4, 6), 200, dtype=np.uint8)
    tokens = ("[CLS]", "1,1", "1,2", "1,3", "2,1", "2,2", "2,3")
    root = draw(record(tokens, kind="vit", image=image, grid=(2, 3)), layer=1, head=1)
    assert len(list(root.iter(f"{SVG}image"))) == 1 and len(list(root.iter(f"{SVG}use"))) == 6 + 1
    dark = [float(one.get("fill-opacity", 1)) for one in root.iter(f"{SVG}rect") if one.get("fill") == "#000000"]
    assert dark[-6:] == [0, 0.8, 0.8, 0.8, 0.8, 0.8]  # [CLS] attends to the next token, the first patch


def test_text_is_escaped_and_no_external_resource_is_needed() -> None:
    found = record(("<b>&\"'", "\x00\ud800", "日本", "שלום", "x" * 40))
    for options in ({}, {"layer": 1}, {"layer": 1, "head": 0}):
        root = draw(found, **options)
        assert root.tag == f"{SVG}svg"
        references = [one.get("href", "") for one in root.iter() if "href" in one.attrib]
        assert all(reference.startswith("data:image/png;base64,") for reference in references)
    texts = texts_of(root)
    assert {"<b>&\"'", "\ufffd\ufffd", "日本", "שלום", "x" * 23 + "…"} <= set(texts)


def test_png_shows_the_same(tmp_path: Path) -> None:
    one = FOUND.select(kind=None, layer=1, head=2)
    one.save(tmp_path / "a.svg")
    one.save(tmp_path / "a.png")
    root = ElementTree.fromstring((tmp_path / "a.svg").read_bytes())
    with Image.open(tmp_path / "a.png") as image:
        assert image.size == (2 * int(root.attrib["width"]), 2 * int(root.attrib["height"]))
        pixels = np.asarray(image.convert("RGB")).astype(int)
    (line,) = (line for line in lines_of(root) if line["stroke-opacity"] == "1")
    numbers = [float(number) for number in re.findall(r"[\d.]+", line["paths"])]
    left, top, *_ = map(float, root.attrib["viewBox"].split())
    x, y = numbers[0] + numbers[-2] - 2 * left, numbers[1] + numbers[-1] - 2 * top  # the middle, at double resolution
    color = [int(line["stroke"][start : start + 2], 16) for start in (1, 3, 5)]
    assert np.abs(pixels[int(y) - 2 : int(y) + 3, int(x)] - color).sum(-1).min() <= 30
    assert (pixels[: 2 * 34].min(axis=(0, 2)) < 80).any()  # the heading


def test_pictures_are_cut_to_what_is_drawn_and_name_text_model_and_maker(tmp_path: Path) -> None:
    long = "a long text " * 60
    one = FOUND.model_copy(update={"model": "a-model", "texts": [long]}).select(kind=None, layer=1, head=2)
    root = ElementTree.fromstring(svg(one.drawing_data()).encode())
    *lines, credit = caption_of(root)
    assert credit == "a-model \u00b7 Made with Regard"
    assert len(lines) == 3 and "".join(lines).startswith("\u201ca long text") and lines[-1].endswith("\u2026")
    one.save(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        pixels = np.asarray(image.convert("L")).astype(int)
    marked = np.argwhere(pixels < 200)
    margins = [*marked.min(0), *(np.array(pixels.shape) - marked.max(0))]
    assert max(margins) <= 2 * 40, margins  # at double resolution; how wide a text is depends on the font
    shorter = FOUND.model_copy(update={"texts": []}).select(kind=None, layer=1, head=2)
    assert caption_of(ElementTree.fromstring(svg(shorter.drawing_data()).encode())) == ["Made with Regard"]


def test_fonts_are_needed_for_png(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_has_font", lambda families: False)
    with pytest.raises(RegardError, match=r"needs a font.*save the result as \.svg"):
        png(svg(FOUND.drawing_data()))


def test_the_page_must_be_built(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"python web/build\.py"):
        svg(FOUND.drawing_data(), static=tmp_path)


def test_invalid_selections() -> None:
    with pytest.raises(InputError, match="no layer is given"):
        draw(FOUND, head=1)
    with pytest.raises(InputError, match="no layer 3"):
        draw(FOUND, layer=3)


def test_ablation_has_every_head_and_target(tiny_bert_folder: Path) -> None:
    probe = pretrained_probe(*regard.load(tiny_bert_folder), TEXT, at="masked")
    result = ablate(probe, heads=[(2, 2)], layers=[1], sweep=sweep_heads(probe))
    root = ElementTree.fromstring(svg(result.drawing_data()))
    texts = texts_of(root)
    assert texts[0].endswith("without heads 2.2 and layers 1")
    crossed = [text for text in texts if text.startswith("\N{MULTIPLICATION SIGN} ")]
    assert len(crossed) == 5  # a head, and the four of a removed layer
    data: Any = result.view_data()
    for effect in data["effects"]:
        assert f"{effect['before']} {effect['likeliest'][0]['before']:.1%}" in texts
        assert f"{effect['after']} {effect['successors'][0]['after']:.1%}" in texts
    cells = [{name: float(one.attrib[name]) for name in ("x", "y", "fill-opacity")} for one in root.iter(f"{SVG}rect")]
    cells = cells[1:9]  # after the background
    darkest = max(cells, key=lambda cell: cell["fill-opacity"])
    layer, head = (sorted({cell[name] for cell in cells}).index(darkest[name]) for name in ("y", "x"))
    assert result.sweep is not None
    assert (layer + 1, head) == (result.sweep.ranked[0].layer, result.sweep.ranked[0].head)


def test_ablation_of_an_unchanged_model_has_no_after(tiny_bert_folder: Path) -> None:
    probe = pretrained_probe(*regard.load(tiny_bert_folder), TEXT, at="masked")
    result = ablate(probe, sweep=sweep_heads(probe))
    texts = texts_of(ElementTree.fromstring(svg(result.drawing_data())))
    expected = [f"{one.before} {one.likeliest[0].before:.1%}" for one in result.effects]
    assert [text for text in texts if text in set(expected)] == expected
    assert texts[-1] == "below each: the most probable prediction"


def test_faithfulness_has_every_test_and_three_rows(tiny_bert_folder: Path) -> None:
    result = measure_faithfulness(task_probe(deciding(Tokenizer.open(tiny_bert_folder), 3), TEXT))
    texts = texts_of(ElementTree.fromstring(svg(result.drawing_data())))
    assert texts[0].startswith("faithful (") and "positive" in texts[0]
    for check in result.checks:
        assert f"{check.value:.3f} of {check.threshold:.2f} or more" in texts
    assert texts.count("good") == 3


def test_values_near_zero_have_no_sign(tiny_bert_folder: Path) -> None:
    result = measure_faithfulness(task_probe(deciding(Tokenizer.open(tiny_bert_folder), 3), TEXT))
    data: Any = result.drawing_data()
    small = (1e-9, -1e-9, 1e-5, -4e-4, 0.0, -6e-4)
    checks = [{**check, "value": value} for check, value in zip(data["checks"], small, strict=True)]
    texts = texts_of(ElementTree.fromstring(svg({**data, "checks": checks})))
    assert sum(text.startswith("0.000 of") for text in texts) == 5
    assert sum(text.startswith("\N{MINUS SIGN}0.001 of") for text in texts) == 1


def test_removed_boxes_of_the_figure_are_faded(tiny_bert_folder: Path) -> None:
    pair = regard.load(tiny_bert_folder)
    for without, opacity in (([], "0.28"), (["positions"], "0.06")):
        figure = figure_of(LoadedModel("", *pair), "the film", without=without)
        root = ElementTree.fromstring(svg({**figure.drawing_data(), "place": "#figure?layer=1"}))
        elements = list(root)
        label = next(index for index, one in enumerate(elements) if one.text == "Encoding")
        background = [one for one in elements[:label] if one.tag == f"{SVG}rect"][-1]
        assert background.get("fill-opacity") == opacity
        assert any(text.startswith("intact model: loss") for text in texts_of(root))
