"""`regard score`: a row for each line, one JSON document, and notes about the scores."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.cli.app import run
from regard.inference.likelihood import score_lines
from tests.inference.folders import tiny_gpt

LINES = ["the film was good", "", "a\tdull dây"]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def gpt_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gpt(tmp_path_factory.mktemp("gpt"), positions=16)


@pytest.fixture
def call(gpt_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")

    def regard_score(*arguments: str, model: Path = gpt_folder) -> int:
        return run(["score", *arguments, "--model", str(model)])

    return regard_score


def test_a_row_for_each_line(call: Callable[..., int], gpt_folder: Path, capsys: Captured) -> None:
    assert call("in.txt") == 0
    out, error = capsys.readouterr()
    expected = list(score_lines(*regard.load(gpt_folder), LINES))
    assert out.splitlines() == [
        f"{expected[0].log_probability:.4f}\t{expected[0].tokens}\t{expected[0].mean:.4f}\tthe film was good",
        "-\t0\t-\t",
        f"{expected[2].log_probability:.4f}\t{expected[2].tokens}\t{expected[2].mean:.4f}\ta\tdull dây",
    ]
    assert error.startswith("1 row without a text gets no answer: in.txt line 2\nscoring: 3 lines in")
    assert error.count("\n") == 2


def test_one_document(
    call: Callable[..., int], gpt_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode())))
    assert call("-", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    expected = list(score_lines(*regard.load(gpt_folder), LINES))
    assert (document["model"], document["kind"]) == (str(gpt_folder), "log-probability")
    assert [line["line"] for line in document["lines"]] == [1, 2, 3]
    for line, one in zip(document["lines"], expected, strict=True):
        assert line["log_probability"] == (pytest.approx(one.log_probability) if one.tokens else None)
        assert (line["tokens"], line["mean"]) == (one.tokens, pytest.approx(one.mean) if one.mean else None)
    assert document["tokens"] == sum(one.tokens for one in expected)
    assert document["log_probability"] == pytest.approx(sum(one.log_probability for one in expected))


def test_notes(call: Callable[..., int], tiny_bert_folder: Path, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "long.txt").write_text("the film was good " * 9 + "\nshort\n", encoding="utf-8")
    assert call("long.txt") == 0
    assert "scored in windows, for more tokens than the model reads at once: 1 line\n" in capsys.readouterr().err
    (tmp_path / "without").mkdir()
    assert call("long.txt", model=tiny_gpt(tmp_path / "without", begin=False)) == 0
    assert (
        "the first tokens of 2 lines were not scored: the tokenizer puts no token before a text"
        in capsys.readouterr().err
    )
    assert call("in.txt", "--json", model=tiny_bert_folder) == 0
    out, error = capsys.readouterr()
    assert json.loads(out)["kind"] == "pseudo-log-likelihood"
    assert "pseudo-log-likelihood: each token was masked in turn" in error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "in.txt is empty: expected at least one row"),
        (b"good\n\xff\n", "in.txt line 2"),
        (None, "there is no file in.txt"),
    ],
)
def test_invalid_input_is_a_one_line_error(
    content: bytes | None, message: str, call: Callable[..., int], tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "in.txt").unlink()
    if content is not None:
        (tmp_path / "in.txt").write_bytes(content)
    assert call("in.txt") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
