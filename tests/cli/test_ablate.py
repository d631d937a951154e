"""`regard ablate`: tables, JSON documents and messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import regard
from regard.cli.app import run
from regard.interpret.ablation import ablate, sweep_heads
from regard.interpret.attribution.probe import pretrained_probe
from regard.tasks.fine_tuned_model import save_fine_tuned
from regard.text import Tokenizer
from regard.verbs.ablate import MAX_SWEEP_TARGETS
from tests.interpret.classifiers import deciding

Captured = pytest.CaptureFixture[str]
TEXT = "the _ was [MASK]"


@pytest.fixture
def call(tiny_bert_folder: Path) -> Callable[..., int]:
    def regard_ablate(*arguments: str, model: Path = tiny_bert_folder) -> int:
        return run(["ablate", *arguments, "--model", str(model)])

    return regard_ablate


def test_the_document(call: Callable[..., int], tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call(TEXT, "--heads", "1.1,-1.*", "--layers", "1", "--top", "3", "--json") == 0
    out, error = capsys.readouterr()
    probe = replace(pretrained_probe(*regard.load(tiny_bert_folder), TEXT), name=str(tiny_bert_folder))
    heads = [(1, 1), (2, 0), (2, 1), (2, 2), (2, 3)]
    expected = ablate(probe, heads=heads, layers=[1], top=3, sweep=sweep_heads(probe)).to_dict()
    assert json.loads(out) == json.loads(json.dumps(expected))
    assert len(expected["sweep"]["ranked"]) == 8
    assert error == ""
    assert call(TEXT, "--heads", "1.1", "--no-sweep", "--json") == 0
    assert json.loads(capsys.readouterr().out)["sweep"] is None


def test_the_tables(call: Callable[..., int], capsys: Captured) -> None:
    assert call(TEXT, "--heads", "2.2", "--layers", "1", "--top", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == TEXT and "heads 2.2" in lines[1] and "layers 1" in lines[1]
    assert [line.split(":")[0] for line in lines if line.startswith("blank")] == ["blank 1", "blank 2"]
    assert sum("->" in line for line in lines) in (4, 6, 8)
    assert call(TEXT, "--top", "3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "8 heads" in lines[1] and "the 3 " in lines[1]
    assert len(lines) == 7


def test_a_fine_tuned_model(call: Callable[..., int], tiny_bert_folder: Path, tmp_path: Path, capsys: Captured) -> None:
    save_fine_tuned(deciding(Tokenizer.open(tiny_bert_folder), 3, unused_head=True), tmp_path / "task")
    assert call("it is a good day for them", "--heads", "1.0", model=tmp_path / "task") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].startswith("text: positive stays the likeliest; divergence 0.0000 nats")
    assert [line.split()[0] for line in lines[5:]] == ["positive", "negative"]


def test_at_every_token(call: Callable[..., int], tiny_bert_folder: Path, tmp_path: Path, capsys: Captured) -> None:
    text = "the good film was a dull day for them and him"
    assert call(text, "--at", "plain", "--heads", "1.1", "--output", str(tmp_path / "a.json")) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a.json'}\n"
    document = json.loads((tmp_path / "a.json").read_text("utf-8"))
    probe = pretrained_probe(*regard.load(tiny_bert_folder), text, at="plain")
    assert document["effects"] == json.loads(json.dumps(ablate(probe, heads=[(1, 1)]).to_dict()))["effects"]
    assert call(text, "--at", "masked", "--top", "1") == 0
    out, error = capsys.readouterr()
    assert len(out.splitlines()) == 5
    assert f" at {MAX_SWEEP_TARGETS} of the {len(probe.targets)} tokens" in error and error.count("\n") == 1


def test_a_drawing(call: Callable[..., int], tmp_path: Path) -> None:
    assert call(TEXT, "--heads", "1.1", "--output", str(tmp_path / "a.svg")) == 0
    assert "without heads 1.1" in (tmp_path / "a.svg").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (TEXT, "--heads", "3.0"),
            "no layer 3: this model has layers 1 to 2; 0 is the embeddings",
        ),
        ((TEXT, "--layers", "x"), "expected its number from 1"),
        (("no blank",), "expected a text with a blank"),
        ((TEXT, "second"), "a second text is for a fine-tuned model"),
    ],
)
def test_invalid_input(call: Callable[..., int], arguments: tuple[str, ...], message: str, capsys: Captured) -> None:
    assert call(*arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert message in error


def test_a_model_folder_where_the_text_belongs(tiny_bert_folder: Path, capsys: Captured) -> None:
    assert run(["attribute", str(tiny_bert_folder), "the cat", "--model", str(tiny_bert_folder)])
    assert "is a model folder" in capsys.readouterr().err
