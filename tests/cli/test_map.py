"""`regard map`: text, JSON, data files, the page and errors."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.cli.app import run

Captured = pytest.CaptureFixture[str]
Call = Callable[..., int]

TEXTS = ["the good film", "the bad film", "a long day", "a day in the water", "they love a film", "no water"]


@pytest.fixture
def call(tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run `regard map` in this process, in a folder with a plain file and one with labels."""
    monkeypatch.chdir(tmp_path)
    Path("plain.txt").write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    rows = [f"{text}\t{'film' in text}\n" for text in TEXTS]
    Path("labels.tsv").write_text("sentence\tlabel\n" + "".join(rows), encoding="utf-8")

    def regard_map(*arguments: str) -> int:
        fixed = ["--model", str(tiny_bert_folder), "--device", "cpu"]
        return run(["map", *arguments, *fixed])

    return regard_map


def test_text(call: Call, tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call("labels.tsv", "--neighbors", "2") == 0
    out, error = capsys.readouterr()
    found = regard.sentence_map(TEXTS, model=str(tiny_bert_folder), neighbors=2, device="cpu")
    first, second = found.explained
    lines = out.splitlines()
    assert lines[0].startswith("6 sentences, vectors of width 32")
    assert f"{first + second:.1%} of the variance: {first:.1%} horizontally, {second:.1%} vertically" in lines[1]
    x, y = found.sentences[0].point
    assert lines[3:6] == [
        f"({x:.3f}, {y:.3f})  the good film  [True]",
        *(f"    {near.cosine:6.3f}  {TEXTS[near.index]}" for near in found.sentences[0].neighbors),
    ]
    assert "labels.tsv: tab-separated, header" in error and "6 examples" in error


def test_json_with_a_random_sample(call: Call, tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call("plain.txt", "--json", "--layers=1", "--limit", "4", "--seed", "5", "-k", "1", "--pooling", "cls") == 0
    out, error = capsys.readouterr()
    found = regard.sentence_map(
        TEXTS, model=str(tiny_bert_folder), layers="1", pooling="cls", neighbors=1, limit=4, seed=5, device="cpu"
    )
    assert json.loads(out) == found.to_dict()
    assert "4 of 6 texts were sampled at random (seed 5); 2 are left out" in error.splitlines()


def test_data_file(call: Call, capsys: Captured) -> None:
    assert call("plain.txt", "--output", "map.json", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads(Path("map.json").read_text(encoding="utf-8")) == {"generator": "Regard", **printed}


def test_page(call: Call, capsys: Captured, page_built: None) -> None:
    assert call("labels.tsv", "--columns", "sentence,label", "--seed", "3", "--output", "map.html") == 0
    assert capsys.readouterr().out == "map.html\n"
    text = Path("map.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="regard">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    payload = json.loads(found[1])
    assert payload["view"] == "map"
    assert [one["text"] for one in payload["sentences"]] == TEXTS
    words = shlex.split(payload["cli"])
    assert words[:2] == ["regard", "map"] and words[-1] == "labels.tsv" and "sentence,label" in words
    assert run([*words[1:], "--json", "--device", "cpu"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["sentences"] == payload["sentences"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.txt"], "absent.txt"),
        (["plain.txt", "--layers", "9"], "layers 0 to 2"),
    ],
)
def test_invalid_input(arguments: list[str], message: str, call: Call, capsys: Captured) -> None:
    assert call(*arguments) == 2
    assert message in capsys.readouterr().err
    assert not list(Path().glob("map*"))
