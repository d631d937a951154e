"""Runs the commands of docs/engineers.md in order on the file that the page is about, with a tiny model."""

from __future__ import annotations

import csv
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from regard.cli.app import run
from tests.checkpoints.conftest import FakeHub, fake_hub  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "engineers.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (regard .*)$", PAGE, re.MULTILINE)


@pytest.mark.long
def test_the_commands_run_and_the_answers_are_beside_the_rows(
    tmp_path: Path,
    tiny_bert_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    one_thread: None,
    page_built: None,
    fake_hub: FakeHub,  # noqa: F811
) -> None:
    fake_hub.models["sentence-transformers/all-MiniLM-L6-v2"] = {
        path.name: path.read_bytes() for path in tiny_bert_folder.iterdir() if path.name != "checksums.json"
    }
    shutil.copy(ROOT / "examples" / "reviews.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) == 11
    without_model = ("search", "evaluate", "predict", "export", "models", "download")  # they name a model themselves
    for command in COMMANDS:
        words = shlex.split(command)[1:]
        if words[0] not in without_model:
            words += ["--model", str(tiny_bert_folder)]
        assert run(words) == 0, (command, capsys.readouterr().err)
        assert capsys.readouterr().out, command
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "engineers.md", "exec"), names)
    assert names["logits"].shape == (2, 2)
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    with open(tmp_path / "reviews.csv", encoding="utf-8-sig", newline="") as file:
        reviews = list(csv.DictReader(file, delimiter=";"))
    with open(tmp_path / "answers.csv", encoding="utf-8", newline="") as file:
        answers = list(csv.DictReader(file))
    assert len(reviews) == len(answers) == 102
    assert [row["id"] for row in answers] == [row["id"] for row in reviews]
    assert {row["label"] for row in answers} <= {"positive", "negative"}
