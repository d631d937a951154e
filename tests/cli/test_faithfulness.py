"""`regard faithfulness`: the verdict with its numbers, the JSON document and messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.cli.app import run
from regard.inference.load_model import load_model
from regard.interpret.attribution.probe import probe_model
from regard.interpret.faithfulness import FaithfulnessCheck, measure_faithfulness
from regard.tasks.fine_tuned_model import save_fine_tuned
from regard.text import Tokenizer
from tests.interpret.classifiers import deciding

Captured = pytest.CaptureFixture[str]
TEXT = "it is a good day for them"


@pytest.fixture(scope="module")
def folders(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer, folder = Tokenizer.open(tiny_bert_folder), tmp_path_factory.mktemp("classifiers")
    save_fine_tuned(deciding(tokenizer, 3), folder / "deciding")
    save_fine_tuned(deciding(tokenizer, 3, uniform=True), folder / "uniform")
    return folder


@pytest.fixture
def call(folders: Path) -> Callable[..., int]:
    def regard_faithfulness(name: str, *arguments: str) -> int:
        return run(["faithfulness", str(folders / name), *arguments])

    return regard_faithfulness


def test_the_document(call: Callable[..., int], folders: Path, capsys: Captured) -> None:
    assert call("deciding", TEXT, "--label", "negative", "--seed", "2", "--json") == 0
    out, error = capsys.readouterr()
    expected = measure_faithfulness(
        probe_model(load_model(folders / "deciding"), TEXT), label="negative", seed=2
    ).to_dict()
    assert json.loads(out) == json.loads(json.dumps(expected))
    assert error == ""


def test_a_faithful_map(call: Callable[..., int], capsys: Captured) -> None:
    assert call("deciding", TEXT) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("positive 9")
    assert lines[0].endswith("; the map of layer 1, mean of all heads")
    assert len([line for line in lines if line.startswith(("  passed", "  failed"))]) == 6
    assert lines[-1].startswith("verdict: faithful (")
    heaviest = max(lines[3:12], key=lambda line: line.count("█"))
    assert heaviest.split()[0] == "good"


def test_numbers_rounded_to_zero_have_no_sign() -> None:
    line = FaithfulnessCheck.of("permuted attention", -1e-9, 0.1, uniform=-4e-4, tau=-6e-4).line()
    assert "0.000 (at least 0.10; uniform 0.000, tau -0.001)" in line and "-0.000" not in line


def test_an_uninformative_map(call: Callable[..., int], capsys: Captured) -> None:
    assert call("uniform", TEXT) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith(
        "verdict: unfaithful (0 of 6 passed): the class stays the same wherever this map points"
    )
    assert sum("none: the map points at nothing" in line for line in lines) == 5


def test_output_files(call: Callable[..., int], folders: Path, tmp_path: Path, capsys: Captured) -> None:
    assert call("deciding", TEXT, "--output", str(tmp_path / "a.json")) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a.json'}\n"
    expected = measure_faithfulness(probe_model(load_model(folders / "deciding"), TEXT)).to_dict()
    expected = {"generator": "Regard", **json.loads(json.dumps(expected))}
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == expected
    assert call("deciding", TEXT, "--output", str(tmp_path / "a.svg")) == 0
    assert "faithful (" in (tmp_path / "a.svg").read_text("utf-8")


def test_a_pretrained_model_has_no_verdict(tiny_bert_folder: Path, capsys: Captured) -> None:
    text = "the _ was a good film"
    assert run(["honesty", str(tiny_bert_folder), text, "--layer", "-1"]) == 0
    out, error = capsys.readouterr()
    found = measure_faithfulness(probe_model(load_model(tiny_bert_folder), text), layer=2)
    assert out.startswith(f"{found.label} {found.probability:.1%}; the map of layer 2, mean of all heads")
    assert "verdict" not in out and "no verdict: the tests judge" in error
    assert f"{found.integrated.scores[5]:.3f}" in next(line for line in out.splitlines() if " good " in line)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere", TEXT), "nowhere"),
        (("deciding", TEXT, "--head", "1"), "no head 1: this model has one head, number 0"),
        (("deciding", TEXT, "second"), "classify reads one text"),
    ],
)
def test_invalid_input(call: Callable[..., int], arguments: tuple[str, ...], message: str, capsys: Captured) -> None:
    assert call(*arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert message in error
