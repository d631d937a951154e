"""`regard perplexity`: files, pipes, the JSON document and notes about the numbers."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.cli.app import run
from tests.inference.folders import tiny_gpt
from tests.inference.measure import measure_perplexity

TEXT = "the film was good and they love it.\nso dull, she said"
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def call(tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run `regard perplexity` in this process, in a folder with the text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text(TEXT + "\n", encoding="utf-8")

    def regard_perplexity(*arguments: str, model: Path = tiny_bert_folder) -> int:
        return run(["perplexity", *arguments, "--model", str(model)])

    return regard_perplexity


def test_pseudo_perplexity(
    call: Callable[..., int], tiny_bert_folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.inference.masked_lm.BATCH_TOKENS", {"cpu": 60})  # several batches, so several reports
    assert call("in.txt", "--json") == 0
    out, error = capsys.readouterr()
    document = json.loads(out)
    expected = measure_perplexity(*regard.load(tiny_bert_folder), TEXT)
    assert document.pop("model") == str(tiny_bert_folder)
    assert document == pytest.approx({k: v for k, v in expected.to_dict().items() if k != "model"})
    assert set(document) >= {"kind", "tokens", "bytes", "nll", "perplexity", "bits_per_byte"}
    assert document["kind"] == "pseudo-perplexity"
    assert document["bytes"] == len(TEXT)
    assert f"scoring: {expected.tokens} tokens in" in error
    assert "pseudo-perplexity: each token was masked in turn" in error


def test_a_sample(call: Callable[..., int], tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call("in.txt", "--json", "--sample", "3", "--seed", "5", "--max-length", "9") == 0
    out, error = capsys.readouterr()
    document = json.loads(out)
    expected = measure_perplexity(*regard.load(tiny_bert_folder), TEXT, sample=3, seed=5, max_length=9)
    assert document["nll"] == pytest.approx(expected.nll)
    assert f"a sample: 3 of {expected.text_tokens} tokens were scored" in error


def test_perplexity_of_a_gpt(call: Callable[..., int], tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "gpt").mkdir()
    folder = tiny_gpt(tmp_path / "gpt")
    assert call("in.txt", "--stride", "5", "--max-length", "12", model=folder) == 0
    out, error = capsys.readouterr()
    expected = measure_perplexity(*regard.load(folder), TEXT, stride=5, max_length=12)
    assert out.splitlines() == [
        f"perplexity         {expected.perplexity:,.4g}",
        f"bits per byte      {expected.bits_per_byte:.4f}",
        f"nll                {expected.nll:,.2f} nats",
        f"tokens scored      {expected.tokens}",
        f"bytes              {len(TEXT)}",
        f"model              {folder}",
    ]
    assert error.count("\n") == 1
    assert error.startswith("scoring: ")


def test_notes_about_unscored_and_unknown_tokens(call: Callable[..., int], tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "gpt").mkdir()
    assert call("in.txt", model=tiny_gpt(tmp_path / "gpt", begin=False)) == 0
    assert "the first token was not scored: the tokenizer puts no token before a text" in capsys.readouterr().err
    (tmp_path / "in.txt").write_text("the € film", encoding="utf-8")
    assert call("in.txt") == 0
    assert "1 of 3 tokens stand for words outside the vocabulary" in capsys.readouterr().err


def test_pipes_and_compressed_files(
    call: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    found = []
    for source in ("in.txt", "in.txt.gz", "-"):
        assert call(source, "--json") == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (b"", [], "in.txt is empty; expected a text to score"),
        (b"a\n\xff\n", [], "in.txt line 2"),
        (b"a", ["--stride", "2"], "stride is for causal models"),
        (b"a", ["--max-length", "500"], "max_length is 500; expected 1 to 128"),
        (b"a", ["--sample", "0"], "sample is 0"),
        (None, [], "there is no file in.txt"),
    ],
)
def test_invalid_input_is_a_one_line_error(
    content: bytes | None,
    arguments: list[str],
    message: str,
    call: Callable[..., int],
    tmp_path: Path,
    capsys: Captured,
) -> None:
    (tmp_path / "in.txt").unlink()
    if content is not None:
        (tmp_path / "in.txt").write_bytes(content)
    assert call("in.txt", *arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
