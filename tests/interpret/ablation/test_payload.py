"""The view "surgery": its numbers are the library's, and its lines say the same again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli import ablate as verb
from regard.cli.app import run
from regard.interpret.ablation.ablation import Ablation, HeadSweep, ablate, sweep_heads
from regard.interpret.ablation.payload import MAX_SWEEP_TARGETS, ablation_payload, sweep_subsample
from regard.interpret.attribution.probe import Probe, pretrained_probe, subsample_targets, task_probe
from regard.text import Tokenizer
from tests.inference.folders import tiny_gpt
from tests.interpret.classifiers import deciding

TEXT = "the good film was a dull day for them and for him"
HEADS = [(0, 1), *((1, head) for head in range(4))]


@pytest.fixture(scope="module")
def trial(tiny_bert_folder: Path) -> Probe:
    return pretrained_probe(*regard.load(tiny_bert_folder), TEXT, at="masked")


@pytest.fixture(scope="module")
def payload(tiny_bert_folder: Path, trial: Probe) -> dict[str, Any]:
    return ablation_payload(str(tiny_bert_folder), trial, heads=HEADS, layers=[0], at="masked")


def again(payload: dict[str, Any]) -> Ablation | HeadSweep:
    *lines, last = payload["python"].splitlines()
    scope: dict[str, Any] = {}
    exec("\n".join([*lines, f"found = {last}"]), scope)
    found: Ablation | HeadSweep = scope["found"]
    return found


def test_effects_are_those_of_ablate(payload: dict[str, Any], trial: Probe) -> None:
    effects = ablate(trial, heads=HEADS, layers=[0]).effects
    assert [one["strength"] for one in payload["effects"]] == pytest.approx([one.strength for one in effects], rel=1e-5)
    assert [one["before"] for one in payload["effects"]] == [one.before for one in effects]
    assert payload["effects"][3]["likeliest"][0]["before"] == pytest.approx(effects[3].likeliest[0].before, rel=1e-5)
    assert payload["gone"] == {"heads": [list(head) for head in HEADS], "layers": [0]}
    assert (payload["spots"], payload["ways"]) == (list(range(1, 13)), ["masked", "plain", "blanks"])
    assert json.loads(json.dumps(payload)) == payload


def test_every_head_alone_stands_in_order(payload: dict[str, Any], trial: Probe) -> None:
    few = subsample_targets(trial, MAX_SWEEP_TARGETS)
    wanted = {(one.layer, one.head): one for one in sweep_heads(few).ranked}
    assert payload["sweep"]["places"] == [trial.targets.index(place) for place in few.targets]
    assert [(one["layer"], one["head"]) for one in payload["sweep"]["heads"]] == sorted(wanted)
    for one in payload["sweep"]["heads"]:
        same = wanted[one["layer"], one["head"]]
        assert one["strengths"] == pytest.approx(same.strengths, rel=1e-5)
        assert (one["changed"], one["after"]) == (len(same.changed), list(same.after))


def test_the_python_says_the_same(payload: dict[str, Any], trial: Probe, tiny_bert_folder: Path) -> None:
    found = again(payload)
    assert isinstance(found, Ablation)
    assert [one.after for one in found.effects] == [one["after"] for one in payload["effects"]]
    whole: dict[str, Any] = ablation_payload(str(tiny_bert_folder), trial, at="masked", tried=sweep_subsample(trial))
    assert all(one["strength"] == 0 for one in whole["effects"])
    found = again(whole)
    assert isinstance(found, HeadSweep)
    first = found.ranked[0]
    cell = next(one for one in whole["sweep"]["heads"] if (one["layer"], one["head"]) == (first.layer, first.head))
    assert cell["strength"] == pytest.approx(first.strength, rel=1e-5)


def test_the_command_says_the_same(
    payload: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_built: None
) -> None:
    monkeypatch.chdir(tmp_path)
    command = shlex.split(payload["cli"])
    assert command[command.index("--heads") + 1] == "0.1,1.*"
    assert run(command[1:], registers=[verb.register]) == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    start = page.index('id="regard">') + len('id="regard">')
    assert json.loads(page[start : page.index("</script>", start)]) == payload


def test_a_tuned_model_and_a_gpt(tiny_bert_folder: Path, tmp_path: Path) -> None:
    tuned = task_probe(deciding(Tokenizer.open(tiny_bert_folder), 3), "it is a good day for them")
    found: dict[str, Any] = ablation_payload("DIR", tuned, heads=[(0, 0)])
    (effect,) = found["effects"]
    assert (found["spots"], found["ways"], effect["place"]) == ([], ["blanks"], "text")
    assert {one["output"] for one in effect["likeliest"]} == {"negative", "positive"}
    gpt = pretrained_probe(*regard.load(tiny_gpt(tmp_path)), "the film day", at="plain")
    found = ablation_payload("-gpt", gpt, at="plain")
    assert found["tokens"] == ["the", " film", " day"]  # as people read them
    assert found["spots"] == [1, 2, 3]
    assert "--model -gpt" in found["cli"]
