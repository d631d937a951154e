"""`regard features`: the stages in order, both results side by side, and the JSON document."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.cli.app import run
from regard.render import bundle

Captured = pytest.CaptureFixture[str]
Call = Callable[..., int]


@pytest.fixture
def call(tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run `regard features` in this process, in a folder with a small file."""
    monkeypatch.chdir(tmp_path)
    texts = [
        f"the {word} film{' was so long and they said no' * (n % 3)}" for n in range(12) for word in ("good", "bad")
    ]
    rows = [f"{text}\t{int('good' in text)}\n" for text in texts]
    Path("data.tsv").write_text("".join(rows), encoding="utf-8")

    def regard_features(*arguments: str) -> int:
        fixed = ["--model", str(tiny_bert_folder), "--device", "cpu"]
        return run(["features", *arguments, *fixed])

    return regard_features


def test_stages(call: Call, tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call("--data", "data.tsv", "--as-in-deck") == 0
    out, error = capsys.readouterr()
    expected = regard.features(data="data.tsv", model=str(tiny_bert_folder), device="cpu")
    ids = expected.ids[0]
    lines = out.splitlines()
    stages = [line for line in lines if line[:1].isdigit()]
    assert stages == [
        "1. 24 texts with labels (1: 12, 0: 12)",
        "2. Tokens of the first text, with their ids",
        "3. Every text as ids",
        f"4. Padded to the longest text: 24 x 19, {expected.padding:.0f}% of it padding",
        "5. Attention mask, 24 x 19: 1 is a token, 0 is padding and not attended to",
        "6. Hidden states: 24 x 19 x 32 (texts x tokens x width), computed in batches",
        "7. Features: the slice [:, 0, :], each text's first token: 24 x 32",
        "8. Logistic regression, cross-validated: each fifth of the 24 texts is scored once",
    ]
    assert "      1  the good film" in lines
    tokens = next(index for index, line in enumerate(lines) if "[CLS]" in line)
    assert lines[tokens].split() == ["[CLS]", "the", "good", "film", "[SEP]"]
    assert lines[tokens + 1].split() == [str(number) for number in ids]
    starts = [[found.start() for found in re.finditer(r"\S+", line)] for line in lines[tokens : tokens + 2]]
    assert starts[0] == starts[1]  # each token above its id
    assert f"   [{', '.join(map(str, ids))}]" in lines
    assert f"   [{', '.join(map(str, [*ids, 0, 0, 0]))}, ..., 0, 0, 0]" in lines
    assert "   [1, 1, 1, 1, 1, 0, 0, 0, ..., 0, 0, 0]" in lines
    assert f"{expected.features[0][0]:8.4f}" in out
    assert expected.unmasked is not None
    results = {line[3:45].strip(): line[45:].split() for line in lines[-5:]}
    both = (expected.masked, expected.unmasked)
    folds = " ".join(results["accuracy, mean and spread of 5 folds"])
    assert folds == " ".join(f"{one.mean:.2f} +- {one.deviation:.2f}%" for one in both)
    assert results["one split: 18 to train, 6 to test"] == [f"{one.accuracy:.2f}%" for one in both]
    assert results["always guessing the larger class"] == [f"{one.guess:.2f}%" for one in both]
    assert "data.tsv: tab-separated, no header" in error
    assert "embedding: 48 texts in" in error


def test_the_page(call: Call, tiny_bert_folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "page", lambda payload, *, title: json.dumps(payload))
    assert call("--data", "data.tsv", "--limit", "20", "--seed", "1", "--output", "walk.html") == 0
    assert capsys.readouterr().out == "walk.html\n"
    payload = json.loads(Path("walk.html").read_text(encoding="utf-8"))
    expected = regard.features(data="data.tsv", limit=20, seed=1, model=str(tiny_bert_folder), device="cpu")
    assert (payload["view"], payload["total"], payload["notes"]) == ("features", 20, [])
    assert payload["examples"] == [list(one) for one in expected.examples]
    assert payload["masked"] == expected.masked.model_dump()
    assert expected.unmasked is not None and payload["unmasked"] == expected.unmasked.model_dump()
    assert payload["cli"] == f"regard features --data data.tsv --limit 20 --model {tiny_bert_folder} --seed 1"


def test_an_invalid_output_path_is_an_error(call: Call, capsys: Captured) -> None:
    assert call("--data", "data.tsv", "--output", "walk.pdf") == 2
    assert "expected a file name that ends in .html" in capsys.readouterr().err
    assert call("--data", "data.tsv", "--output", "nowhere/walk.html") == 2
    assert "there is no folder" in capsys.readouterr().err


def test_one_document(call: Call, tiny_bert_folder: Path, capsys: Captured) -> None:
    options = [
        "--no-as-in-deck",
        "--limit",
        "20",
        "--pooling",
        "mean",
        "--layers",
        "sum(-2:)",
        "--columns",
        "0,1",
        "--seed",
        "2",
    ]
    assert call("--data", "data.tsv", "--json", *options) == 0
    document = json.loads(capsys.readouterr().out)
    chosen = {"limit": 20, "pooling": "mean", "layers": "sum(-2:)", "seed": 2, "as_in_deck": False, "device": "cpu"}
    assert document == regard.features(data="data.tsv", model=str(tiny_bert_folder), **chosen).to_dict()
    assert document["layer"] == "sum(-2:)"
    assert document["unmasked"] is None
    assert document["hidden"] == [20, 19, 32]


def test_long_and_wide_tokens_stay_in_lines(call: Call, capsys: Captured) -> None:
    rows = [f"{'the film was good ' * 20}{'bad' * (n % 2)}\t{n % 2}\n" for n in range(10)]
    Path("data.tsv").write_text("".join(rows), encoding="utf-8")
    assert call("--data", "data.tsv", "--pooling", "mean") == 0
    out = capsys.readouterr().out
    assert "the mean of each text's tokens: 10 x 32" in out
    assert max(map(len, out.splitlines())) <= 110
    assert sum(line.split().count("film") for line in out.split("2. Tokens")[1].split("3. Every")[0].splitlines()) == 20


def test_truncated_texts_are_reported(call: Call, capsys: Captured) -> None:
    rows = [f"{'the film was good ' * 40}\t{n % 2}\n" for n in range(10)]
    Path("data.tsv").write_text("".join(rows), encoding="utf-8")
    assert call("--data", "data.tsv") == 0
    assert "10 texts had more tokens than the model reads and were truncated" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "none.tsv"], "none.tsv"),
        (["--data", "data.tsv", "--limit", "3"], "only 1 of 3 examples have the label '0'"),
        (["--data", "data.tsv", "--layers", "9"], "layer 9 does not exist"),
        (["--data", "data.tsv", "--columns", "0,7"], "7"),
        ([], "--data"),
    ],
)
def test_invalid_input_is_a_one_line_error(arguments: list[str], message: str, call: Call, capsys: Captured) -> None:
    assert call(*arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.splitlines()[-1].startswith("error: ")
    assert message in error.splitlines()[-1]


def test_without_scikit_learn(call: Call, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert call("--data", "data.tsv") == 2
    assert "pip install scikit-learn" in capsys.readouterr().err
