"""Surgery and honesty as files: what a picture says is what the payload says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import regard
from regard.errors import InputError
from regard.interpret.ablation.payload import ablation_payload
from regard.interpret.attribution.probe import pretrained_probe, task_probe
from regard.interpret.faithfulness.drawing import ablation_picture, check_suffix, faithfulness_picture, write_result
from regard.interpret.faithfulness.payload import faithfulness_payload
from regard.render.drawing import Drawing, Tile, svg
from regard.text import Tokenizer
from tests.interpret.classifiers import deciding

TEXT = "it is a good day for them"
SMALL = (1e-9, -1e-9, 1e-5, -4e-4, 0.0, -6e-4)


@pytest.fixture(scope="module")
def surgery(tiny_bert_folder: Path) -> dict[str, Any]:
    trial = pretrained_probe(*regard.load(tiny_bert_folder), TEXT, at="masked")
    return ablation_payload("<b>BERT</b>", trial, heads=[(1, 2)], layers=[0], at="masked")


@pytest.fixture(scope="module")
def honesty(tiny_bert_folder: Path) -> dict[str, Any]:
    return faithfulness_payload("DIR", task_probe(deciding(Tokenizer.open(tiny_bert_folder), 3), TEXT))


def said(picture: Drawing) -> list[str]:
    return ["".join(one.itertext()) for one in ElementTree.fromstring(svg(picture)).iter() if one.tag.endswith("text")]


def test_surgery_has_every_head_and_place(surgery: dict[str, Any]) -> None:
    picture = ablation_picture(surgery)
    texts = said(picture)
    assert texts[0] == "<b>BERT</b> without heads 1.2 and layers 0"
    assert sum(text.startswith("x ") for text in texts) == 5  # a head, and the four of a layer that is left out
    for effect in surgery["effects"]:
        assert f"{effect['before']} {effect['likeliest'][0]['before']:.1%}" in texts
        assert f"{effect['after']} {effect['successors'][0]['after']:.1%}" in texts
    tiles = [shape for shape in picture.shapes if isinstance(shape, Tile)]
    darkest = min(tiles[:8], key=lambda tile: int(tile.pixels.sum()))
    strongest = max(range(8), key=lambda number: surgery["sweep"]["heads"][number]["strength"])
    assert tiles.index(darkest) == strongest


def test_honesty_has_every_test_and_three_rows(honesty: dict[str, Any]) -> None:
    texts = said(faithfulness_picture(honesty))
    assert texts[0].startswith("honest (") and "positive" in texts[0]
    for check in honesty["verdict"]["checks"]:
        assert f"{check['value']:.3f} of {check['threshold']:.2f} or more" in texts
    assert texts.count("good") == 3


def test_numbers_near_zero(honesty: dict[str, Any], tmp_path: Path) -> None:
    """A bar of less than a pixel is drawn, and what is rounded to zero has no sign."""
    pytest.importorskip("PIL")
    checks = [{**check, "value": value} for check, value in zip(honesty["verdict"]["checks"], SMALL, strict=True)]
    near = {**honesty, "verdict": {**honesty["verdict"], "checks": checks}}
    write_result(tmp_path / "a.png", document=dict, payload=lambda: near, picture=faithfulness_picture)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    texts = said(faithfulness_picture(near))
    assert not any("-0.000" in text for text in texts)
    assert sum(text.startswith("0.000 of") for text in texts) == 5
    assert sum(text.startswith("-0.001 of") for text in texts) == 1


def test_with_nothing_out_there_is_no_after(tiny_bert_folder: Path) -> None:
    payload = ablation_payload("BERT", pretrained_probe(*regard.load(tiny_bert_folder), TEXT, at="masked"), at="masked")
    texts = said(ablation_picture(payload))
    wanted = [f"{one['before']} {one['likeliest'][0]['before']:.1%}" for one in payload["effects"]]  # type: ignore[attr-defined]
    assert [text for text in texts if text in set(wanted)] == wanted
    assert texts[-1] == "below each: what is likeliest"


@pytest.mark.parametrize("ending", ["html", "svg", "png", "json"])
def test_files_by_their_ending(honesty: dict[str, Any], ending: str, tmp_path: Path, page_built: None) -> None:
    place = tmp_path / f"file.{ending}"
    if ending == "png":
        pytest.importorskip("PIL")
    write_result(place, document=lambda: {"a": 1}, payload=lambda: honesty, picture=faithfulness_picture)
    content = place.read_bytes()
    if ending == "json":
        assert json.loads(content) == {"a": 1}
    else:
        assert content.startswith({"html": b"<!doctype", "svg": b"<svg", "png": b"\x89PNG"}[ending])


def test_other_endings() -> None:
    check_suffix("A.HTML")
    with pytest.raises(InputError, match=r"ends in \.html, \.svg, \.png, \.json"):
        check_suffix("page.pdf")
