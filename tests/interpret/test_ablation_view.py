"""The data of the ablation view: the values of the result, with tokens as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import InputError
from regard.interpret.ablation import AblationResult, ablate, sweep_heads
from regard.interpret.attribution.probe import Probe, pretrained_probe, subsample_targets, task_probe
from regard.text import Tokenizer
from tests.inference.folders import tiny_gpt
from tests.interpret.classifiers import deciding

TEXT = "the good film was a dull day for them and for him"
HEADS = [(1, 1), *((2, head) for head in range(4))]


@pytest.fixture(scope="module")
def probe(tiny_bert_folder: Path) -> Probe:
    return pretrained_probe(*regard.load(tiny_bert_folder), TEXT, at="masked")


@pytest.fixture(scope="module")
def result(probe: Probe) -> AblationResult:
    return ablate(probe, heads=HEADS, layers=[1], sweep=sweep_heads(subsample_targets(probe, 8)))


def test_effects_and_removed_parts(result: AblationResult) -> None:
    data: Any = result.view_data()
    effects = result.effects
    assert [one["strength"] for one in data["effects"]] == pytest.approx([one.strength for one in effects], rel=1e-5)
    assert [one["before"] for one in data["effects"]] == [one.before for one in effects]
    assert data["effects"][3]["likeliest"][0]["before"] == pytest.approx(effects[3].likeliest[0].before, rel=1e-5)
    assert (data["heads"], data["layers"]) == ([list(head) for head in HEADS], [1])
    assert (data["positions"], data["modes"]) == (list(range(1, 13)), ["masked", "plain", "blanks"])
    assert json.loads(json.dumps(data)) == data


def test_the_sweep_has_every_head(result: AblationResult) -> None:
    sweep: Any = result.view_data()["sweep"]
    assert result.sweep is not None
    assert sweep["targets"] == list(result.sweep.targets)
    for shown, expected in zip(sweep["ranked"], result.sweep.ranked, strict=True):
        assert (shown["layer"], shown["head"]) == (expected.layer, expected.head)
        assert shown["strengths"] == pytest.approx(expected.strengths, rel=1e-5)
        assert (shown["changed"], shown["after"]) == (list(expected.changed), list(expected.after))


def test_without_removal_nothing_changes(probe: Probe) -> None:
    assert all(one.strength == 0 for one in ablate(probe).effects)
    with pytest.raises(InputError, match="--no-sweep"):
        ablate(probe).view_data()


def test_a_fine_tuned_model_and_a_gpt(tiny_bert_folder: Path, tmp_path: Path) -> None:
    tuned = task_probe(deciding(Tokenizer.open(tiny_bert_folder), 3), "it is a good day for them")
    data: Any = ablate(tuned, heads=[(1, 0)], sweep=sweep_heads(tuned)).view_data()
    (effect,) = data["effects"]
    assert (data["positions"], data["modes"], effect["target"]) == ([], ["blanks"], "text")
    assert {one["output"] for one in effect["likeliest"]} == {"negative", "positive"}
    gpt = pretrained_probe(*regard.load(tiny_gpt(tmp_path)), "the film day", at="plain")
    data = ablate(gpt, sweep=sweep_heads(gpt)).view_data()
    assert data["tokens"] == ["the", " film", " day"]  # readable tokens
    assert data["positions"] == [1, 2, 3]
