"""Pictures of attention: which lines and maps are drawn, and that SVG and PNG are whole."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from regard.errors import InputError
from regard.interpret.attention.maps import AttentionMaps, AttentionRecord, MapKind, TokenAxis
from regard.render.drawing import Drawing, Label, Stroke, Tile, png, svg

SVG = "{http://www.w3.org/2000/svg}"


def looked(
    tokens: tuple[str, ...], *, layers: int = 2, heads: int = 3, kind: MapKind = "encoder", **more: Any
) -> AttentionRecord:
    count = len(tokens)
    side = TokenAxis(tokens, tuple(range(count)), (0,) * count)
    weights = np.zeros((layers, heads, count, count), dtype=np.float32)
    for head in range(heads):  # head n looks n tokens ahead, and a little at the first
        for row in range(count):
            weights[:, head, row, (row + head) % count] += 0.75
            weights[:, head, row, 0] += 0.25
    one = AttentionMaps(
        kind=kind,
        layers=list(range(layers)),
        heads=list(range(heads)),
        causal=False,
        scale=None,
        rows=side,
        columns=side,
        weights=weights,
        query=None,
        key=None,
        is_self_attention=True,
    )
    return AttentionRecord(family="bert", texts=["text"], maps=[one], **more)


def draw(
    record: AttentionRecord, *, kind: MapKind | None = None, layer: int | None = None, head: int | None = None
) -> Drawing:
    return record.select(kind=kind, layer=layer, head=head).to_drawing()


FOUND = looked(("[CLS]", "a", "b", "[SEP]"))


def test_one_head() -> None:
    picture = draw(FOUND, layer=1, head=2)
    strokes = [shape for shape in picture.shapes if isinstance(shape, Stroke)]
    top = min(stroke.start[1] for stroke in strokes)
    seen = {(round((s.start[1] - top) / 20), round((s.end[1] - top) / 20)): s.opacity for s in strokes}
    assert seen == {(0, 2): 0.75, (0, 0): 0.25, (1, 3): 0.75, (1, 0): 0.25, (2, 0): 1.0, (3, 1): 0.75, (3, 0): 0.25}
    assert len({stroke.color for stroke in strokes}) == 1
    assert picture.title == "encoder attention, layer 1, head 2"


def test_all_heads_of_a_layer_have_their_colours() -> None:
    picture = draw(FOUND, layer=0)
    assert len(set(legend_of(picture).values())) == 3
    assert set(legend_of(picture).values()) == lines_of(picture)


def legend_of(picture: Drawing) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The colour and dash of the piece of line before each head's name."""
    found = {}
    for before, shape in pairwise(picture.shapes):
        if isinstance(shape, Label) and shape.text.startswith("head ") and isinstance(before, Stroke):
            assert before.end[0] < shape.x and before.start[1] == before.end[1]
            found[shape.text] = (before.color, before.dash)
    return found


def lines_of(picture: Drawing) -> set[tuple[str, tuple[int, ...]]]:
    strokes = [shape for shape in picture.shapes if isinstance(shape, Stroke)]
    return {(one.color, one.dash) for one in strokes if one.end[0] - one.start[0] > 100}


@pytest.mark.parametrize("heads", [12, 16, 32])
def test_more_heads_than_colours_are_dashed(heads: int) -> None:
    picture = draw(looked(("a", "b", "c"), heads=heads), layer=0)
    legend = legend_of(picture)
    assert list(legend) == [f"head {number}" for number in range(heads)]
    assert len(set(legend.values())) == heads and set(legend.values()) == lines_of(picture)
    assert all(shape.x < picture.width - 40 for shape in picture.shapes if isinstance(shape, Label))
    assert svg(picture).count("stroke-dasharray") > heads - 8
    assert not any("share color" in shape.text for shape in picture.shapes if isinstance(shape, Label))


def test_heads_with_equal_color_and_dash_are_noted() -> None:
    picture = draw(looked(("a", "b"), heads=33), layer=0)
    assert any(
        "heads 32 apart share color and dash" in shape.text for shape in picture.shapes if isinstance(shape, Label)
    )


def test_a_dashed_line_has_gaps_in_a_png() -> None:
    picture = Drawing("", 200, 20, (Stroke((0, 10), (200, 10), "#000000", 1.0, (8, 4)),))
    with Image.open(io.BytesIO(png(picture, scale=1))) as image:
        row = np.asarray(image.convert("L"))[10]
    assert [int(row[place]) for place in (2, 6, 10, 14, 22)] == [0, 0, 255, 0, 255]


def test_every_head_has_a_small_map() -> None:
    picture = draw(FOUND)
    tiles = [shape for shape in picture.shapes if isinstance(shape, Tile)]
    assert len(tiles) == 6
    pixels = tiles[2].pixels  # layer 0, head 2
    assert pixels.shape == (4, 4, 3)
    dark = pixels.sum(-1)
    assert dark[2, 0] == dark.min()  # the map's largest weight
    assert (pixels[0, 1] == 255).all()
    assert all(tile.x + tile.width <= picture.width and tile.y + tile.height <= picture.height for tile in tiles)


def test_a_long_text_is_made_coarse_and_keeps_its_peaks() -> None:
    tokens = tuple(f"w{number}" for number in range(512))
    picture = draw(looked(tokens, layers=1, heads=1))
    (tile,) = (shape for shape in picture.shapes if isinstance(shape, Tile))
    assert tile.pixels.shape == (132, 132, 3)
    assert len({tuple(tile.pixels[place, place]) for place in range(1, 132)}) == 1  # the diagonal is whole


def test_patches_over_the_image() -> None:
    image = np.full((4, 6), 200, dtype=np.uint8)
    found = looked(("[CLS]", "1,1", "1,2", "1,3", "2,1", "2,2", "2,3"), kind="vit", image=image, grid=(2, 3))
    picture = draw(found, layer=0, head=1)
    (tile,) = (shape for shape in picture.shapes if isinstance(shape, Tile))
    assert tile.pixels.shape == (4, 6, 3)
    marked = (tile.pixels != tile.pixels[3, 5]).any(-1)
    assert marked[:2, :2].all() and marked.sum() == 4  # [CLS] looks at the next token, the first patch


def test_svg_is_whole_and_holds_any_text() -> None:
    found = looked(("<b>&\"'", "\x00\ud800", "日本", "שלום", "x" * 40))
    for options in ({}, {"layer": 1}, {"layer": 1, "head": 0}):
        text = svg(draw(found, **options))
        root = ElementTree.fromstring(text.encode("utf-8"))
        assert root.tag == f"{SVG}svg"
        assert text.count("http") == 1  # the namespace
    names = [element.text for element in root.iter(f"{SVG}text")]
    assert "<b>&\"'" in names and "日本" in names
    assert "x" * 23 + "…" in names


def test_png_has_the_drawing() -> None:
    picture = draw(FOUND, layer=1, head=2)
    with Image.open(io.BytesIO(png(picture))) as image:
        assert image.size == (2 * picture.width, 2 * picture.height)
        pixels = np.asarray(image.convert("RGB"))
    (stroke,) = (s for s in picture.shapes if isinstance(s, Stroke) and s.opacity == 1)
    x, y = ((a + b) for a, b in zip(stroke.start, stroke.end, strict=True))  # the middle, at twice the size
    red, green, blue = (int(stroke.color[place : place + 2], 16) for place in (1, 3, 5))
    assert np.abs(pixels[int(y), int(x)].astype(int) - [red, green, blue]).max() <= 3
    with Image.open(io.BytesIO(png(draw(FOUND), scale=1))) as image:
        assert image.width == draw(FOUND).width


def test_what_is_thinner_than_a_pixel_is_one_pixel() -> None:
    thin = Tile(4, 2, 0.001, 3, np.zeros((1, 1, 3), dtype=np.uint8))
    low = Tile(8, 2, 3, 0.2, np.zeros((1, 1, 3), dtype=np.uint8))
    with Image.open(io.BytesIO(png(Drawing("", 20, 10, (thin, low)), scale=1))) as image:
        black = np.argwhere(np.asarray(image.convert("L")) == 0).tolist()
    assert black == [[2, 4], [2, 8], [2, 9], [2, 10], [3, 4], [4, 4]]


def test_what_is_not_there() -> None:
    with pytest.raises(InputError, match="no layer is given"):
        draw(FOUND, head=1)
    with pytest.raises(InputError, match="no layer 2"):
        draw(FOUND, layer=2)
    with pytest.raises(InputError, match="no cross attention"):
        draw(FOUND, kind="cross")
