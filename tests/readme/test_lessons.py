"""Runs the commands of the lessons page; long training runs are shortened."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from regard.cli.app import run

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = re.findall(r"^    (regard .*)$", (ROOT / "docs" / "lessons.md").read_text(encoding="utf-8"), re.MULTILINE)
SMALL = ["--units", "4", "--train-size", "30", "--test-size", "5", "--epochs", "1", "--jobs", "1", "--batch-size", "30"]


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    assert run([*words, *(SMALL if "reverse" in words else [])]) == 0, capsys.readouterr().err
    page = tmp_path / words[words.index("--output") + 1]
    assert "<svg" in page.read_text(encoding="utf-8")
    assert f"Page written to {page.name}" in capsys.readouterr().out


def test_there_are_commands() -> None:
    assert len(COMMANDS) == 3
