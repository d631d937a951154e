"""The walk as the page gets it: the library's own numbers, the texts it was made of, and the lines that repeat it."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli import features
from regard.cli.app import run
from regard.data.examples import TextExample
from regard.errors import InputError
from regard.interpret.embeddings.walk import walk_payload
from regard.interpret.probes.walk import walk

pytest.importorskip("sklearn")

EXAMPLES = [
    TextExample(f"the {word} film{' was so long, and they said no' * (n % 3)}", label=word)
    for n in range(6)
    for word in ("good", "bad")
]


def test_the_numbers_are_the_walks(tiny_bert_folder: Path) -> None:
    payload = walk_payload("tiny", regard.load(tiny_bert_folder), EXAMPLES, pooling="mean", layer="1")
    expected = walk(tiny_bert_folder, EXAMPLES, pooling="mean", layer="1", as_in_deck=True, device="cpu")
    assert expected.unmasked is not None
    for name in ("tokens", "ids", "padded", "mask", "matrix", "hidden", "slice", "labels", "counts", "padding"):
        assert payload[name] == getattr(expected, name)
    assert payload["masked"] == vars(expected.masked)
    assert payload["unmasked"] == vars(expected.unmasked)
    assert payload["features"] == [pytest.approx(row, abs=1e-5) for row in expected.features]
    assert payload["examples"] == [[example.text, example.label] for example in EXAMPLES]
    assert payload["notes"] == []


def test_the_command_reproduces_it(
    tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Many texts are in the CSV file that the page gives."""
    monkeypatch.chdir(tmp_path)
    payload = walk_payload(str(tiny_bert_folder), regard.load(tiny_bert_folder), [*EXAMPLES, *EXAMPLES[:4]])
    rows = payload["examples"]
    assert isinstance(rows, list) and len(rows) == 16
    with open("regard-features.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text", "label"], *rows])
    words = shlex.split(str(payload["cli"]), comments=True)
    assert run([*words[1:], "--json", "--device", "cpu"], registers=[features.register]) == 0
    printed = json.loads(capsys.readouterr().out)
    for name in ("tokens", "ids", "padded", "counts", "masked", "unmasked"):
        assert printed[name] == payload[name]


@pytest.mark.parametrize("count", [12, 16])
def test_the_python_reproduces_it(
    count: int, tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few texts are spelled; many are in the CSV file that the page gives."""
    monkeypatch.chdir(tmp_path)
    pair = regard.load(tiny_bert_folder)
    payload = walk_payload(str(tiny_bert_folder), pair, [*EXAMPLES, *EXAMPLES[:4]][:count], pooling="mean")
    if count > 12:
        with open("regard-features.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["text", "label"], *payload["examples"]])  # type: ignore[misc]
    *lines, last = str(payload["python"]).splitlines()
    space: dict[str, Any] = {}
    exec("\n".join([*lines, f"found = {last}"]), space)
    assert len(space["examples"]) == count
    for name in ("tokens", "ids", "padded", "counts"):
        assert getattr(space["found"], name) == payload[name]
    assert vars(space["found"].masked) == payload["masked"]


def test_more_than_the_limit_is_drawn_by_lot(tiny_bert_folder: Path) -> None:
    pair = regard.load(tiny_bert_folder)
    payload = walk_payload("tiny", pair, EXAMPLES * 4, limit=20, seed=1)
    assert payload["notes"] == ["20 of 48 texts were drawn by lot (seed 1); 28 are left out"]
    assert payload["matrix"] == (20, 21)  # the longest: 3 words, twice 8 pieces, 2 signs


@pytest.mark.parametrize(
    ("examples", "said"),
    [
        ([TextExample("one"), TextExample("two")], "have no labels; put one behind each"),
        ([], "have no labels"),
        (
            [TextExample(f"film {n}", label="x" if n else "y") for n in range(12)],
            "only 1 of 12 examples have the label 'y'",
        ),
    ],
)
def test_mistakes(examples: list[TextExample], said: str, tiny_bert_folder: Path) -> None:
    with pytest.raises(InputError, match=said):
        walk_payload("tiny", regard.load(tiny_bert_folder), examples)
