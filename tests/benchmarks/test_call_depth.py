"""The count of frames from a command to the first attention; no command becomes deeper than it was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.call_depth import commands, measure, switches
from benchmarks.timing import RESULTS


def test_switches_are_changes_of_the_file() -> None:
    assert switches([("a.py", "f"), ("a.py", "g"), ("b.py", "f"), ("a.py", "h")]) == 2


@pytest.mark.parametrize("name", ["train", "embed"])
def test_a_command_is_no_deeper_than_it_was(name: str, tmp_path: Path) -> None:
    recorded = json.loads((RESULTS / "call_depth.json").read_text(encoding="utf-8"))["commands"][name]
    stack = measure(commands(tmp_path)[name])
    assert stack[0] == ("cli/__init__.py", "main") and stack[-1][1].startswith("Attention.")
    assert len(stack) <= recorded["frames"] and switches(stack) <= recorded["file_changes"], stack
