"""`regard layers`: the two tables, the deck's numbers, the JSON document and one-line errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import regard
from regard.cli.app import run
from regard.interpret.probes import layers as lab
from regard.interpret.probes.probe_heads import ProbeRecipe
from regard.models import Elmo, ElmoConfig
from regard.text import Tokenizer

Captured = pytest.CaptureFixture[str]
Call = Callable[..., int]

TAGGED = "the DT O\ngood JJ O\nwater NN I-THING\nis VB O\n\nthey PR O\nmake VB O\nsound NN I-THING\n\n"


@pytest.fixture
def call(tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run `regard layers` in this process, in a folder with small files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lab, "LINEAR", ProbeRecipe(batch_size=256, epochs=1, steps=20, learning_rate=5e-2))
    monkeypatch.setattr(lab, "BILSTM", ProbeRecipe(batch_size=32, epochs=1, steps=2, learning_rate=1e-2))
    Path("train.conll").write_text(10 * TAGGED, encoding="utf-8")
    Path("dev.conll").write_text(4 * TAGGED, encoding="utf-8")
    rows = [f"the {word} film\t{int(word == 'good')}\n" for word in ("good", "bad") * 10]
    Path("train.tsv").write_text("".join(rows), encoding="utf-8")

    def regard_layers(*arguments: str) -> int:
        fixed = ["--model", str(tiny_bert_folder), "--device", "cpu"]
        return run(["layers", *arguments, *fixed])

    return regard_layers


@pytest.mark.parametrize("files", [("--train", "train.conll", "--dev", "dev.conll"), ("--task", "classify")])
def test_an_elmo(files: tuple[str, ...], tiny_bert_folder: Path, call: Call, capsys: Captured) -> None:
    """Three layers of 2 * 6 numbers; the last `--model` counts."""
    tokenizer = Tokenizer.open(tiny_bert_folder)
    torch.manual_seed(0)
    regard.save(
        Elmo(ElmoConfig(vocab_size=tokenizer.size, num_characters=0, hidden_size=6, cell_size=6, num_hidden_layers=2)),
        "elmo",
        tokenizer,
    )
    chosen = files if "--dev" in files else (*files, "--train", "train.tsv", "--dev", "train.tsv")
    arguments = ["layers", *chosen, "--model", "elmo", "--device", "cpu", "--json"]
    assert run(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in document["layers"]] == ["layer 0 (embeddings)", "layer 1", "layer 2"]
    assert len(document["mix"]) == 3 and sum(document["mix"]) == pytest.approx(1)
    assert all(0 <= row["score"] <= 100 for row in document["layers"] + document["rows"])


def test_tables(call: Call, tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call("--train", "train.conll", "--dev", "dev.conll") == 0
    out, error = capsys.readouterr()
    expected = regard.compare_layers(train="train.conll", dev="dev.conll", model=str(tiny_bert_folder), device="cpu")
    lines = out.splitlines()
    assert lines[0].startswith("Entity F1 on 8 examples") and " on 20" in lines[0]
    assert lines[0].endswith(f" {tiny_bert_folder}")
    for row, weight in zip(expected.layers, expected.mix, strict=True):
        line = next(line for line in lines if line.startswith(row.name))
        assert line.split()[-5:] == [f"{row.score:.2f}", f"{row.low:.2f}", "-", f"{row.high:.2f}", f"{weight:.3f}"]
    for row in expected.rows:
        line = next(line for line in lines if line.startswith(row.name))
        deck = [] if row.deck is None else [str(row.deck)]
        assert line[30:].split() == [f"{row.score:.2f}", f"{row.low:.2f}", "-", f"{row.high:.2f}", *deck]
    assert [line.split()[-1] for line in lines[8:14]] == ["91.0", "94.9", "95.5", "95.6", "95.9", "96.1"]
    assert "BERT base, CoNLL-2003 dev F1, a two-layer BiLSTM" in lines[-1]
    assert "train.conll: IOB1, 3 columns; 20 examples" in error
    assert "reading: 28 texts in" in error
    assert "training linear heads: 20 steps in" in error


def test_one_document(call: Call, tiny_bert_folder: Path, capsys: Captured) -> None:
    options = ["--task", "classify", "--pooling", "cls", "--limit", "12", "--seed", "3", "--head", "bilstm"]
    assert call("--train", "train.tsv", "--dev", "train.tsv", *options, "--columns", "0,1", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    chosen = {"head": "bilstm", "pooling": "cls", "seed": 3, "limit": 12, "task": "classify", "device": "cpu"}
    found = regard.compare_layers(train="train.tsv", dev="train.tsv", model=str(tiny_bert_folder), **chosen)
    assert found.seconds_reading > 0 and found.seconds_heads > 0
    assert document == found.to_dict()
    assert document["train"] == document["dev"] == 12
    assert {row["head"] for row in document["rows"]} == {"bilstm"}


def test_text_classification_has_no_numbers_of_the_deck(call: Call, capsys: Captured) -> None:
    assert call("--train", "train.tsv", "--dev", "train.tsv", "--task", "classify") == 0
    out = capsys.readouterr().out
    assert out.startswith("Accuracy on 20 examples")
    assert "deck" not in out
    assert "Concat Last Four Hidden" in out


def test_notes(call: Call, capsys: Captured) -> None:
    Path("dev.conll").write_text("\n".join(["water NN I-LIQUID"] * 300), encoding="utf-8")
    assert call("--train", "train.conll", "--dev", "dev.conll") == 0
    error = capsys.readouterr().err
    assert "labels that train lacks and no head can predict: B-LIQUID, I-LIQUID" in error
    assert "longer than the model reads were read in parts: 3 more" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train", "train.conll", "--dev", "none.conll"], "none.conll"),
        (["--train", "bad.conll", "--dev", "dev.conll"], "bad.conll line 2"),
        (["--train", "train.conll", "--dev", "empty.conll"], "empty.conll is empty"),
        (["--train", "train.conll", "--dev", "dev.conll", "--columns", "0,1"], "expected a tag in column 1"),
        (["--train", "one.tsv", "--dev", "train.tsv", "--task", "classify", "--columns", "0,1"], "has the label 'x'"),
        (["--train", "train.conll", "--dev", "dev.conll", "--head", "crf"], "--head"),
    ],
)
def test_invalid_input_is_a_one_line_error(arguments: list[str], message: str, call: Call, capsys: Captured) -> None:
    Path("bad.conll").write_text("the DT O\ngood\n", encoding="utf-8")
    Path("empty.conll").write_text("", encoding="utf-8")
    Path("one.tsv").write_text("the good film\tx\nthe bad film\tx\n", encoding="utf-8")
    assert call(*arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.splitlines()[-1].startswith("error: ")
    assert message in error.splitlines()[-1]
