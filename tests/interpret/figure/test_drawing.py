"""Figure 1 as a still picture: its colours are the page's, and what is off is pale."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from regard.inference.load_model import load_model
from regard.interpret.figure import drawing
from regard.interpret.figure.figure import draw_figure
from regard.render.drawing import ACCENT, COLORS, OTHER, QUIET, TEXT, Drawing, Label, Tile, blend

WEB = Path(__file__).resolve().parents[3] / "web" / "src"
DRAW = (WEB / "views" / "figure" / "draw.tsx").read_text(encoding="utf-8")
THEME = (WEB / "theme.tsx").read_text(encoding="utf-8")


def test_the_colours_are_the_pages() -> None:
    kinds = re.search(r"const KINDS.*? = \{(.*?)\};", DRAW)
    assert kinds is not None
    assert {name: int(number) for name, number in re.findall(r"(\w+): (\d)", kinds[1])} == drawing.KINDS
    full = re.search(r"const \[FRAME, BOX, REMOVED\] = \[(.*?)\];", DRAW)
    assert full is not None
    assert tuple(map(float, full[1].split(","))) == (drawing.FRAME, drawing.BOX, drawing.REMOVED)
    light = re.search(r"const LIGHT: Colors = \{(.*?)\};", THEME, re.DOTALL)
    assert light is not None
    named = dict(re.findall(r'(\w+): "(#[0-9a-f]{6})"', light[1]))
    assert (named["ink"], named["muted"], named["accent"], named["other"]) == (TEXT, QUIET, ACCENT, OTHER)
    assert named["page"] == "#ffffff"


def ground(picture: Drawing, name: str) -> list[int]:
    """The colour of the box that a name stands in."""
    label = next(one for one in picture.shapes if isinstance(one, Label) and one.text == name)
    around = [
        tile
        for tile in picture.shapes
        if isinstance(tile, Tile)
        and tile.x <= label.x <= tile.x + tile.width
        and tile.y <= label.y <= tile.y + tile.height
    ]
    found: list[int] = around[-1].pixels[0, 0].tolist()
    return found


def test_boxes_have_the_colour_of_their_kind(tiny_bert_folder: Path) -> None:
    pair = load_model(tiny_bert_folder)
    whole, off = (draw_figure(*pair, "the film", without=names).to_drawing() for names in ([], ["positions"]))
    # 28% of #56b4e9 and 72% of white
    assert ground(whole, "Feed Forward") == [208, 234, 249]
    for name, number in (("Attention", 4), ("Linear", 0), ("Softmax", 2), ("Input Embedding", 3)):
        assert ground(whole, name) == blend(COLORS[number], 0.28)[0, 0].tolist()
    assert ground(whole, "Encoding") == blend(QUIET, 0.28)[0, 0].tolist()
    assert ground(off, "Encoding") == blend(QUIET, 0.06)[0, 0].tolist()
    assert np.array_equal(ground(off, "Linear"), ground(whole, "Linear"))
