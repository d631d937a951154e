"""`regard next`: the probability, truncation and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.cli.app import run
from regard.inference.masked_lm import predict_next_sentence

Captured = pytest.CaptureFixture[str]
PAIR = ("the film was good.", "they love it")


@pytest.fixture
def call(tiny_bert_folder: Path) -> Callable[..., int]:
    """Run `regard next` in this process with the tiny model."""

    def regard_next(*arguments: str) -> int:
        return run(["next", *arguments, "--model", str(tiny_bert_folder)])

    return regard_next


def test_the_probability(call: Callable[..., int], tiny_bert_folder: Path, capsys: Captured) -> None:
    expected = predict_next_sentence(*regard.load(tiny_bert_folder), *PAIR).is_next
    assert call(*PAIR, "--json") == 0
    out, error = capsys.readouterr()
    assert (json.loads(out), error) == ({"is_next": expected}, "")
    assert call(*PAIR) == 0
    out, error = capsys.readouterr()
    assert out.startswith(f"{expected:.3%} likely") and out.count("\n") == 1 and error == ""


def test_truncation_is_reported(call: Callable[..., int], capsys: Captured) -> None:
    assert call("film " * 130, "a day", "--json") == 0
    out, error = capsys.readouterr()
    assert set(json.loads(out)) == {"is_next"}
    assert "7 tokens too long" in error


@pytest.mark.parametrize(
    ("arguments", "message"), [(["the film", ""], "but the second is empty"), (["the film"], "Missing argument")]
)
def test_invalid_input_is_a_one_line_error(
    arguments: list[str], message: str, call: Callable[..., int], capsys: Captured
) -> None:
    assert call(*arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert message in error
    assert error.count("\n") == 1
