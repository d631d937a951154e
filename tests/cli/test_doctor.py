"""`regard doctor`: one line per finding, JSON, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import regard
from regard.cli.app import run, verb_commands
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
from regard.tasks.text_classification import TextClassification
from regard.training.doctor import CHECKS
from tests.training.doctor.seeds import clean_pairs, clean_texts, write_tsv

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run `regard doctor` in this process, in a folder with clean data."""
    monkeypatch.chdir(tmp_path)
    write_tsv(tmp_path / "train.tsv", clean_texts(80, first=0))
    write_tsv(tmp_path / "dev.tsv", clean_texts(40, first=80))

    def regard_doctor(*arguments: str | Path) -> int:
        return run(["doctor", *map(str, arguments)], registers=verb_commands())

    return regard_doctor


def test_a_clean_setup_for_fine_tuning(call: Callable[..., int], tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call(tiny_bert_folder, "--data", "dev.tsv", "--train", "train.tsv") == 0
    out, error = capsys.readouterr()
    lines = out.splitlines()
    assert len(lines) == 11
    assert lines[0].startswith("ok       missing mask               the vectors of a text of ")
    assert lines[-2].startswith("skipped  constant predictions ") and "not fine-tuned" in lines[-2]
    assert "no problem" in lines[-1] and "9 checks" in lines[-1]
    data, train = error.splitlines()
    assert data.startswith("data: 40 examples of dev.tsv") and train.startswith("train: 80 examples of train.tsv")
    assert all("tab-separated, header, text = text, label = label" in line for line in (data, train))


def test_json_has_four_keys_for_each_of_the_ten(
    call: Callable[..., int], tiny_bert_folder: Path, capsys: Captured
) -> None:
    assert call(tiny_bert_folder, "--data", "dev.tsv", "--json") == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [list(one) for one in found] == [["check", "status", "evidence", "remedy"]] * 10
    assert [one["check"] for one in found] == list(CHECKS)
    assert {one["check"]: one["status"] for one in found}["train/dev leakage"] == "skipped"


def test_swapped_columns_are_the_first_line_and_fail(
    call: Callable[..., int], tiny_bert_folder: Path, capsys: Captured
) -> None:
    assert call(tiny_bert_folder, "--data", "dev.tsv", "--columns", "label,text") == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("error    wrong columns              dev.tsv: 40 different labels in 40 examples")
    assert "Remedy: name the columns with --columns" in lines[0]


def test_a_warning_alone_does_not_fail(call: Callable[..., int], tiny_bert_folder: Path, capsys: Captured) -> None:
    dev = Path("dev.tsv").read_text(encoding="utf-8").splitlines()
    Path("dev.tsv").write_text("\n".join([*dev, Path("train.tsv").read_text(encoding="utf-8").splitlines()[1], ""]))
    assert call(tiny_bert_folder, "--data", "dev.tsv", "--train", "train.tsv") == 0
    out = capsys.readouterr().out
    assert out.startswith("warning  train/dev leakage          1 of 41 texts (2.4%) are in train.tsv too")
    assert "no problem" not in out


def test_the_task_of_a_fine_tuned_model_is_used(
    call: Callable[..., int], tiny_bert_folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    encoder, tokenizer = regard.load(tiny_bert_folder)
    assert tokenizer is not None
    task = TextClassification(["neg", "pos"])
    model = EncoderWithHead.from_encoder(encoder, task)
    with torch.no_grad():
        model.head.output.weight.zero_()
    save_fine_tuned(FineTunedModel(task, model, tokenizer, 64), tmp_path / "tuned")
    assert call("tuned", "--data", "dev.tsv", "--json") == 1
    found = {one["check"]: one["status"] for one in json.loads(capsys.readouterr().out)["findings"]}
    assert [check for check, status in found.items() if status == "error"] == ["constant predictions"]
    assert call("tuned", "--data", "dev.tsv", "--task", "tag") == 2
    assert "the model is fine-tuned for the task classify, not for tag; leave --task out" in capsys.readouterr().err


def test_pairs(call: Callable[..., int], tiny_bert_folder: Path, tmp_path: Path, capsys: Captured) -> None:
    lines = ["sentence1\tsentence2\tlabel", *(f"{a.text}\t{a.text_pair}\t{a.label}" for a in clean_pairs(30))]
    (tmp_path / "pairs.tsv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    assert call(tiny_bert_folder, "--data", "pairs.tsv", "--task", "pair") == 0
    assert capsys.readouterr().out.endswith("no problem found in 8 checks\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["MODEL", "--data", "nothing.tsv"], "nothing.tsv"),
        (["MODEL", "--data", "dev.tsv", "--task", "clasify"], "did you mean 'classify'?"),
        (["./nowhere", "--data", "dev.tsv"], "./nowhere: no such folder"),
        (["MODEL"], "Missing option '--data'"),
    ],
)
def test_invalid_input_is_a_one_line_error(
    arguments: list[str], message: str, call: Callable[..., int], tiny_bert_folder: Path, capsys: Captured
) -> None:
    assert call(*(str(tiny_bert_folder) if one == "MODEL" else one for one in arguments)) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
