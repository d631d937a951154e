"""Runs the fine-tuning tutorial in order with a tiny model."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from regard.cli.app import run
from regard.tasks.registry import TASKS
from regard.training import speed
from tests.training.recipes.pretraining.runs import settings, story

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = (ROOT / "docs" / "finetuning.md").read_text(encoding="utf-8")
PUBLISHED = re.compile(r" (cardiffnlp|cross-encoder|dslim)/")  # models of the hub
COMMANDS = [line for line in re.findall(r"^    (regard .*)$", TUTORIAL, re.MULTILINE) if not PUBLISHED.search(line)]
SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "day",
            "paragraphs": [
                {
                    "context": "the day was long and the film was good",
                    "qas": [
                        {"id": "1", "question": "how was the day?", "answers": [{"text": "long", "answer_start": 12}]},
                        {"id": "2", "question": "how was the film?", "answers": [{"text": "good", "answer_start": 34}]},
                    ],
                }
            ],
        }
    ],
}
FILES = {
    "pairs.tsv": "a good day\tthe day is good\tsame\na bad film\twe love it\tother\nso long\tit is long\tsame\n" * 3,
    "scores.tsv": "a good day\tthe day is good\t4.5\na bad film\twe love it\t0.5\nso long\tit is long\t3.2\n" * 3,
    "choices.jsonl": '{"ctx": "the film was", "endings": ["good", "out of water"], "label": 0}\n' * 4,
    "entities.conll": "the O\nfilm B-THING\nwas O\ngood O\n\nmy O\nbook B-THING\n\n" * 4,
    "questions.json": json.dumps(SQUAD),
    "articles.txt": story(),
    "spam.tsv": re.findall(r"```tsv\n(.*?)```", TUTORIAL, re.DOTALL)[0],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.long
def test_the_commands_and_the_python_run(
    page_built: None,
    folder: Path,
    tiny_bert_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(COMMANDS) == 19
    monkeypatch.setattr(speed, "SECONDS", 0.0)
    monkeypatch.setitem(speed.SIDE, "cpu", 64)
    small = [part for value in [*settings("elmo"), "schedule.budget="] for part in ("--set", value)]
    for command in COMMANDS:
        words = [str(ROOT / word) if word.startswith("configs/") else word for word in shlex.split(command)[1:]]
        if words[0] == "pretrain":
            words += small
        if words[0] == "train" and words[1] != "distill" and "--model" not in words:
            words += ["--model", str(tiny_bert_folder)]
        if words[0] == "train" and words[1] in TASKS:
            words += ["--set", "training.min_steps=3"]  # a model that is too small to learn in 60 steps
        assert run(words) == 0, (command, capsys.readouterr().err)
        assert capsys.readouterr().out
    (block,) = re.findall(r"```python\n(.*?)```", TUTORIAL, re.DOTALL)
    block = block.replace("epochs=2, learning_rate", f"model={str(tiny_bert_folder)!r}, epochs=2, learning_rate")
    code = block.replace('output="spam-python"', f'output="spam-python", model={str(tiny_bert_folder)!r}')
    names: dict[str, Any] = {}
    exec(
        compile(code.replace("num_epochs=2", f"{str(tiny_bert_folder)!r}, num_epochs=2"), "finetuning.md", "exec"),
        names,
    )
    assert names["report"].task == "classify"
    assert names["classifier"].predict(["Win cash prizes"])[0] in ("spam", "ham")
