"""`regard senses`: the tables, the JSON document and one-line errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.cli.app import run
from regard.render import bundle

Captured = pytest.CaptureFixture[str]
Call = Callable[..., int]
TEXTS = ("the film is long", "they film the water", "no film")


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    Path("vectors.txt").write_text("film 1 2\n", encoding="utf-8")
    return lambda *arguments: run(["senses", *map(str, arguments), "--device", "cpu"])


def test_one_table_per_model(call: Call, tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call("film", *TEXTS, "-m", tiny_bert_folder, "--static", "vectors.txt") == 0
    out, error = capsys.readouterr()
    assert error == ""
    lines = out.splitlines()
    assert lines[0].startswith("Cosine") and "'film'" in lines[0]
    assert lines[2:5] == [f"{number:4}  {text}" for number, text in enumerate(TEXTS, 1)]
    at = lines.index("vectors.txt")
    assert lines[at + 1].split() == ["1", "and", "2", "1", "and", "3", "2", "and", "3"]
    assert lines[at + 2].split() == ["static", "1.000", "1.000", "1.000"]
    at = lines.index(str(tiny_bert_folder))
    expected = regard.senses("film", list(TEXTS), model=str(tiny_bert_folder), device="cpu")
    layers = expected.similarity[str(tiny_bert_folder)]
    rows = lines[at + 2 :]
    assert len(rows) == len(layers)
    assert rows[0].startswith("layer 0 (embeddings) ") and rows[1].startswith("layer 1 ")
    for row, layer in zip(rows, layers, strict=True):
        assert row.split()[-3:] == [f"{layer[a][b]:.3f}" for a, b in ((0, 1), (0, 2), (1, 2))]


def test_json(call: Call, tiny_bert_folder: Path, capsys: Captured) -> None:
    name = str(tiny_bert_folder)
    assert call("film", *TEXTS, "-m", name, "-m", name, "--static", "vectors.txt", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["word"] == "film" and document["texts"] == [*TEXTS]
    similarity = document["similarity"]
    assert [*similarity] == ["vectors.txt", name]
    assert similarity["vectors.txt"][0][0][2] == pytest.approx(1)
    assert similarity[name][1][0][1] == similarity[name][1][1][0] < 1


def test_the_page(call: Call, tiny_bert_folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "page", lambda payload, *, title: json.dumps(payload))
    name = str(tiny_bert_folder)
    assert call("film", *TEXTS, "-m", name, "--output", "film.html") == 0
    out, error = capsys.readouterr()
    assert out == "film.html\n" and error == ""
    payload = json.loads(Path("film.html").read_text(encoding="utf-8"))
    expected = regard.senses("film", list(TEXTS), model=[name], device="cpu").similarity[name]
    assert (payload["view"], payload["texts"]) == ("senses", [*TEXTS])
    assert np.array(payload["similarity"]) == pytest.approx(np.array(expected), abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["film", "the film"], "expected two texts or more"),
        (["film", "a film", "film", "--static", "nowhere.txt"], "there is no file nowhere.txt"),
        (["dog", "a dog", "dog", "--static", "vectors.txt"], "vectors.txt has no vector for 'dog'"),
        (["film", "a film", "film", "--model", "./nowhere"], "./nowhere: no such folder"),
    ],
)
def test_invalid_input_is_a_one_line_error(call: Call, arguments: list[str], message: str, capsys: Captured) -> None:
    assert call(*arguments) == 2
    out, error = capsys.readouterr()
    assert out == "" and message in error and error.count("\n") == 1


def test_the_help_has_the_example_of_the_lecture(call: Call, capsys: Captured) -> None:
    assert call("--help") == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert 'regard senses train "He took a train." "He likes to train in the mornings."' in text
