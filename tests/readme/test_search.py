"""The commands and the example of docs/search.md run in order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from regard.cli.app import run

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "search.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (regard .*)$", PAGE, re.MULTILINE)
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
REVIEWS = """id,text,date,stars
a1,The battery does not last a day.,2026-01-01,1
a2,"A warm jacket, and it fits.",2026-01-02,5
a3,It arrived two weeks late.,2026-01-03,2
a4,The battery does not last a day.,2026-01-04,1
a5,,2026-01-05,3
a6,The parcel was late and open.,2026-01-06,2
a7,I love the color of the jacket.,2026-01-07,5
"""


@pytest.mark.long
def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reviews.csv").write_text(REVIEWS)
    here = [command for command in COMMANDS if " cross-encoder/" not in command and " my-reranker " not in command]
    assert len(here) == 5 == len(COMMANDS) - 2
    for command in here:
        assert run(shlex.split(command)[1:]) == 0, command
    assert "a1" in capsys.readouterr().out
    assert "a4" in Path("duplicates.csv").read_text() and Path("clusters.jsonl").read_text().count("\n") == 6


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = CODE
    exec(code, {})
