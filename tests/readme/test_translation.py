"""Runs the translation page in order with tiny models."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from regard.cli.app import run

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "translation.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (regard .*)$", PAGE, re.MULTILINE)
TINY = ("hidden_size=16", "num_hidden_layers=2", "num_attention_heads=2", "intermediate_size=16", "embedding_size=8")
QUICK = [
    *(f"model.{setting}" for setting in TINY),
    "training.num_epochs=6",
    "training.tokens_per_batch=30",
    "training.learning_rate=1e-2",
    "training.warmup_steps=5",
]


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Path:
    names = {"pairs.tsv": blocks("tsv")[0], "input.txt": blocks("text")[0], "right.txt": blocks("text")[1]}
    for name, content in names.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.long
def test_the_commands_and_the_python_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(COMMANDS) == 10
    outputs: list[tuple[str, str]] = []
    for command in COMMANDS:
        words = shlex.split(command)[1:]
        more = [word for setting in QUICK for word in ("--set", setting)] if words[0] == "train" else []
        assert run([*words, *more]) == 0, (command, capsys.readouterr().err)
        outputs.append(tuple(capsys.readouterr()))
    assert len(outputs[2][0].splitlines()) == 1
    numbers = [line.split("\t")[0] for line in outputs[3][0].splitlines()]
    assert numbers == ["0"] * 3 + ["1"] * 3
    soft = json.loads((folder / "soft.json").read_text(encoding="utf-8"))
    [[first], [second]] = soft["texts"]
    assert first["source"] == ["the", "big", "dog", "sleeps"] and len(second["source"]) == 6
    for one in (first, second):
        assert len(one["weights"]) == len(one["target"]) == len(one["outside"]) > 0
        assert [sum(row) for row in one["weights"]] == pytest.approx([1.0] * len(one["target"]))
    hard = (folder / "hard.txt").read_text(encoding="utf-8").splitlines()
    assert len(hard) == 2 and all(re.fullmatch(r"(\d+-\d+( |$))*", line) for line in hard)
    assert "mean of heads 0, 1 of decoder layer 1" in outputs[5][1]  # the second to last of two
    assert "<html" in (folder / "search.html").read_text(encoding="utf-8")
    assert json.loads((folder / "search.json").read_text(encoding="utf-8"))["about"]["texts"] == ["the big dog eats"]
    assert "BLEU, lower case" in outputs[9][1] and "case:lc" in outputs[9][1]
    names: dict[str, Any] = {}
    exec(compile(blocks("python")[0], "translation.md", "exec"), names)
    assert len(names["translations"]) == 2 and len(capsys.readouterr().out.splitlines()) == 3
