"""The view "honesty": its verdict and numbers are the meter's, and its words fit what the tests compare."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.cli import honesty as verb
from regard.cli.app import run
from regard.errors import InputError
from regard.interpret.attribution.evidence import gather_evidence
from regard.interpret.attribution.gradients import gradient_times_input, integrated_gradients
from regard.interpret.attribution.probe import Probe, pretrained_probe, task_probe
from regard.interpret.faithfulness.faithfulness import measure_faithfulness
from regard.interpret.faithfulness.payload import faithfulness_payload, pretrained_payload
from regard.interpret.faithfulness.wording import VERDICTS, meanings
from regard.nn import record
from regard.tasks.folder import Solved, write_task
from regard.tasks.model import Tuned
from regard.tasks.tag import Tag
from regard.tasks.texts import Classify
from regard.text import Tokenizer
from tests.inference.folders import tiny_gpt
from tests.interpret.classifiers import deciding

TEXT = "it is a good day for them"


@pytest.fixture(scope="module")
def folder(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("classifier")
    write_task(deciding(Tokenizer.open(tiny_bert_folder), 3), place / "task")
    return place / "task"


@pytest.fixture(scope="module")
def trial(tiny_bert_folder: Path) -> Probe:
    return task_probe(deciding(Tokenizer.open(tiny_bert_folder), 3), TEXT)


def of_classes(tiny_bert_folder: Path, *labels: str, several: bool = False) -> Probe:
    encoder, tokenizer = regard.load(tiny_bert_folder)
    task = Classify(labels, several=several)
    torch.manual_seed(1)
    return task_probe(Solved(task, Tuned.new(encoder, task).eval(), tokenizer, 64), TEXT)


def test_the_verdict_is_the_meters(trial: Probe) -> None:
    found = measure_faithfulness(trial)
    payload: dict[str, Any] = faithfulness_payload("DIR", trial)
    verdict, ground = payload["verdict"], payload["grounds"]
    assert (verdict["verdict"], verdict["flagged"]) == (found.verdict, found.flagged) == ("honest", False)
    assert verdict["means"] == VERDICTS["honest"]
    for shown, check in zip(verdict["checks"], found.checks, strict=True):
        assert (shown["name"], shown["value"], shown["threshold"]) == (check.name, check.value, check.threshold)
        assert shown["passed"] is check.passed
        means = meanings(2)[check.name]
        assert shown["means"] == (means.passed if check.passed else means.failed)
    assert ground["weights"] == pytest.approx(found.weights, rel=1e-5)
    assert ground["integrated"]["scores"] == pytest.approx(found.integrated.scores, rel=1e-5)
    assert ground["gradient"]["scores"] == pytest.approx(found.gradient.scores, rel=1e-5)
    assert (ground["label"], ground["token"]) == ("positive", 0)
    assert faithfulness_payload("DIR", trial, found=found) == payload
    assert json.loads(json.dumps(payload)) == payload


def test_the_lines_say_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_built: None
) -> None:
    trial = task_probe(regard.tasks.folder.read_task(folder), TEXT)
    payload: dict[str, Any] = faithfulness_payload(str(folder), trial, label="negative", layer=0, head=0, seed=2)
    *lines, last = payload["python"].splitlines()
    scope: dict[str, Any] = {}
    exec("\n".join([*lines, f"found = {last}"]), scope)
    assert [one.value for one in scope["found"].checks] == [one["value"] for one in payload["verdict"]["checks"]]
    monkeypatch.chdir(tmp_path)
    assert run(shlex.split(payload["cli"])[1:], registers=[verb.register]) == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    start = page.index('id="regard">') + len('id="regard">')
    assert json.loads(page[start : page.index("</script>", start)]) == payload


def test_class_swap_of_two_classes_is_twice_one_correlation(trial: Probe, tiny_bert_folder: Path) -> None:
    """What the words and docs/honesty.md say of it."""
    swap = measure_faithfulness(trial).checks[0]
    own, other = swap.numbers["label"], swap.numbers["other"]
    assert own is not None and other == pytest.approx(-own) and swap.value == pytest.approx(2 * own)
    assert "twice one correlation" in meanings(2)["class swap"].done
    for several, labels in ((False, "abc"), (True, "ab")):
        found = measure_faithfulness(of_classes(tiny_bert_folder, *labels, several=several)).checks[0].numbers
        assert found["label"] is not None and found["other"] != pytest.approx(-found["label"], abs=1e-3)
        assert "strongest other class" in meanings(len(labels), several=several)["class swap"].done


def test_every_test_has_words(trial: Probe) -> None:
    assert list(meanings(2)) == [check.name for check in measure_faithfulness(trial).checks]


def test_a_pretrained_bert_shows_what_its_word_stands_on(tiny_bert_folder: Path) -> None:
    trial = pretrained_probe(*regard.load(tiny_bert_folder), "the _ was a good film")
    payload: dict[str, Any] = faithfulness_payload("BERT", trial, layer=0, head=2)
    assert payload["verdict"] is None and "no verdict" in payload["notes"][0]
    with trial.evaluating(), record(trial.encoder) as tape:
        best = trial.logits()[0, 0].argmax()
        row = tape.attention()[0][0, 2, 2]
    ground = payload["grounds"]
    assert (ground["token"], ground["label"]) == (2, trial.outputs[best])
    assert ground["weights"] == pytest.approx(row.tolist(), rel=1e-5)
    assert ground["integrated"]["scores"] == pytest.approx(integrated_gradients(trial).scores, rel=1e-5)
    assert ground["gradient"]["scores"] == pytest.approx(gradient_times_input(trial).scores, rel=1e-5)
    scope: dict[str, Any] = {}
    python = payload["python"].replace("'BERT'", repr(str(tiny_bert_folder)))
    exec(python.replace("\ngather_evidence(", "\nx = gather_evidence("), scope)
    assert scope["x"].weights == pytest.approx(row.tolist(), rel=1e-5)


def test_a_gpt_looks_from_its_last_token(tmp_path: Path) -> None:
    trial = pretrained_probe(*regard.load(tiny_gpt(tmp_path)), "the film day")
    found = gather_evidence(trial)
    with trial.evaluating(), record(trial.encoder) as tape:
        trial.logits()
        row = tape.attention()[1][0, :, -1].mean(0)
    assert (found.token, found.layer, found.head) == (2, 1, None)
    assert found.weights == pytest.approx(row.tolist(), rel=1e-5)


def test_what_has_no_one_answer(tiny_bert_folder: Path) -> None:
    encoder, tokenizer = regard.load(tiny_bert_folder)
    task = Tag(["O", "B-PER"])
    with pytest.raises(InputError, match="gives many answers of one text"):
        gather_evidence(task_probe(Solved(task, Tuned.new(encoder, task).eval(), tokenizer, 64), TEXT))
    payload: dict[str, Any] = pretrained_payload("BERT", TEXT, "there is no blank")
    assert payload["grounds"] is None and "no classes" in payload["notes"][0]
