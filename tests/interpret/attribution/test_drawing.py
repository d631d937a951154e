"""Drawings of ablation and faithfulness: they show the numbers of the results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest

import regard
from regard.interpret.ablation import AblationResult, ablate, sweep_heads
from regard.interpret.attribution.drawing import draw_faithfulness
from regard.interpret.attribution.probe import pretrained_probe, task_probe
from regard.interpret.faithfulness import FaithfulnessResult, measure_faithfulness
from regard.render.drawing import Drawing, Tile, png, svg
from regard.text import Tokenizer
from tests.interpret.classifiers import deciding

TEXT = "it is a good day for them"
SMALL = (1e-9, -1e-9, 1e-5, -4e-4, 0.0, -6e-4)


@pytest.fixture(scope="module")
def ablation(tiny_bert_folder: Path) -> AblationResult:
    probe = replace(pretrained_probe(*regard.load(tiny_bert_folder), TEXT, at="masked"), name="<b>BERT</b>")
    return ablate(probe, heads=[(1, 2)], layers=[0], sweep=sweep_heads(probe))


@pytest.fixture(scope="module")
def faithfulness(tiny_bert_folder: Path) -> FaithfulnessResult:
    return measure_faithfulness(task_probe(deciding(Tokenizer.open(tiny_bert_folder), 3), TEXT))


def texts_of(drawing: Drawing) -> list[str]:
    return ["".join(one.itertext()) for one in ElementTree.fromstring(svg(drawing)).iter() if one.tag.endswith("text")]


def test_ablation_has_every_head_and_target(ablation: AblationResult) -> None:
    drawing, data = ablation.to_drawing(), cast(Any, ablation.view_data())
    texts = texts_of(drawing)
    assert texts[0] == "<b>BERT</b> without heads 1.2 and layers 0"
    assert sum(text.startswith("x ") for text in texts) == 5  # a head, and the four of a removed layer
    for effect in data["effects"]:
        assert f"{effect['before']} {effect['likeliest'][0]['before']:.1%}" in texts
        assert f"{effect['after']} {effect['successors'][0]['after']:.1%}" in texts
    tiles = [shape for shape in drawing.shapes if isinstance(shape, Tile)]
    darkest = min(tiles[:8], key=lambda tile: int(tile.pixels.sum()))
    strongest = max(range(8), key=lambda number: data["sweep"]["heads"][number]["strength"])
    assert tiles.index(darkest) == strongest


def test_faithfulness_has_every_test_and_three_rows(faithfulness: FaithfulnessResult) -> None:
    texts = texts_of(faithfulness.to_drawing())
    assert texts[0].startswith("faithful (") and "positive" in texts[0]
    for check in faithfulness.checks:
        assert f"{check.value:.3f} of {check.threshold:.2f} or more" in texts
    assert texts.count("good") == 3


def test_values_near_zero(faithfulness: FaithfulnessResult) -> None:
    """A bar of less than a pixel is drawn, and what is rounded to zero has no sign."""
    pytest.importorskip("PIL")
    data: Any = faithfulness.view_data()
    checks = [{**check, "value": value} for check, value in zip(data["verdict"]["checks"], SMALL, strict=True)]
    drawing = draw_faithfulness({**data, "verdict": {**data["verdict"], "checks": checks}})
    assert png(drawing).startswith(b"\x89PNG")
    texts = texts_of(drawing)
    assert not any("-0.000" in text for text in texts)
    assert sum(text.startswith("0.000 of") for text in texts) == 5
    assert sum(text.startswith("-0.001 of") for text in texts) == 1


def test_without_removal_there_is_no_after(tiny_bert_folder: Path) -> None:
    probe = pretrained_probe(*regard.load(tiny_bert_folder), TEXT, at="masked")
    result = ablate(probe, sweep=sweep_heads(probe))
    texts = texts_of(result.to_drawing())
    expected = [f"{one.before} {one.likeliest[0].before:.1%}" for one in result.effects]
    assert [text for text in texts if text in set(expected)] == expected
    assert texts[-1] == "below each: the likeliest"
