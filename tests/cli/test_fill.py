"""`regard fill`: tables, the JSON document and messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.cli.app import run
from regard.tasks.fine_tuned_model import save_fine_tuned
from regard.text import Tokenizer
from tests.interpret.classifiers import deciding

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def call(tiny_bert_folder: Path) -> Callable[..., int]:
    """Run `regard fill` in this process with the tiny model."""

    def regard_fill(*arguments: str) -> int:
        return run(["fill", *arguments, "--model", str(tiny_bert_folder)])

    return regard_fill


def test_the_json_document(call: Callable[..., int], tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call("the _ was [MASK]", "--top", "3", "--json") == 0
    out, error = capsys.readouterr()
    document = json.loads(out)
    assert document == regard.fill("the _ was [MASK]", model=tiny_bert_folder, top=3).to_dict()
    assert list(document) == ["model", "text", "masks", "joint", "exact"]
    assert [len(candidates) for candidates in document["masks"]] == [3, 3]
    assert set(document["masks"][0][0]) == {"token", "id", "ids", "probability"}
    assert set(document["joint"][0]) == {"tokens", "ids", "text", "probability"}
    assert error == ""


def test_targets(call: Callable[..., int], capsys: Captured) -> None:
    assert call("a _ film", "--targets", "good, Bad,dull,", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert sorted(candidate["token"] for candidate in document["masks"][0]) == ["bad", "dull", "good"]
    assert document["exact"] is True


def test_the_table_of_one_blank(call: Callable[..., int], capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.inference import masked_lm
    from regard.inference.masked_lm import BlankCandidate, FillResult

    rows = [("improvisation", 7, 0.5), ("日本", 8, 0.0125), ("x", 9, 1e-9)]
    words = [BlankCandidate(*row, [row[1]]) for row in rows]
    result = FillResult(model="m", text="stick to _", masks=[words], joint=[], exact=True)
    monkeypatch.setattr(masked_lm, "fill_blanks", lambda *_, **__: result)
    assert call("stick to _") == 0
    assert capsys.readouterr() == (
        "stick to _\n"
        "\n"
        "  improvisation   50.000%  ██████████\n"
        "  日本             1.250%  ▎\n"
        "  x                0.000%\n",
        "",
    )


def test_the_tables_of_several_blanks(call: Callable[..., int], capsys: Captured) -> None:
    assert call("a _ film _", "--top", "2") == 0
    out, error = capsys.readouterr()
    lines = out.splitlines()
    assert [line for line in lines if line and not line.startswith("  ")] == [
        "a _ film _",
        "blank 1",
        "blank 2",
        "together",
    ]
    assert len([line for line in lines if line.startswith("  ")]) == 6
    assert all("%" in line for line in lines if line.startswith("  "))
    assert len({line.index("%") for line in lines[:7] if "%" in line}) == 1
    assert error == ""


def test_a_long_text_is_not_repeated(call: Callable[..., int], capsys: Captured) -> None:
    for text, repeated in [("a film _ and _", True), ("a film _ and\n_", False), ("a film " * 9 + "_ and _", False)]:
        assert call(text, "--targets", "good,bad") == 0
        table = capsys.readouterr().out.partition("together\n")[2].splitlines()
        assert len(table) == 4
        assert all(("film" in line) == repeated for line in table)
        assert {tuple(line.replace("a film ", "").replace("and ", "").split()[:2]) for line in table} == {
            ("good", "good"),
            ("good", "bad"),
            ("bad", "good"),
            ("bad", "bad"),
        }


def test_an_inexact_search_is_reported(call: Callable[..., int], capsys: Captured) -> None:
    assert call("_ _ _ film", "--top", "2") == 0
    assert "the best that a beam search found" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no blank"], "expected a text with a blank, got 'no blank'; mark it with _ or [MASK]"),
        (["a _", "--targets", "film,日"], "'日' is [UNK]; leave them out"),
        (["a _", "--targets", ", "], "targets is empty"),
        (["a _", "--top", "0"], "top is 0"),
        (["film " * 130 + "_"], "has 133 tokens"),
    ],
)
def test_invalid_input_is_a_one_line_error(
    arguments: list[str], message: str, call: Callable[..., int], capsys: Captured
) -> None:
    assert call(*arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_sentence_encoder_is_rejected_with_its_name(minilm_folder: Path, capsys: Captured) -> None:
    assert run(["fill", "a _ film", "--model", str(minilm_folder)]) == 2
    error = capsys.readouterr().err
    assert (
        "this bert model has none: it was tuned for a task" in error and "its folder holds the encoder alone" in error
    )


def test_the_error_for_a_fine_tuned_model_names_the_missing_head(
    tiny_bert_folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    save_fine_tuned(deciding(Tokenizer.open(tiny_bert_folder), 3), tmp_path / "tuned")
    assert run(["fill", "a _ film", "--model", str(tmp_path / "tuned")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "it was tuned for a task" in error and "sentence-transformers" not in error
    assert error.endswith("take the pretrained model it was made from, or another with that head, such as regard-bert")
