"""2,000 cases for every parser; `tests.fuzz.parsers` documents the allowed outcomes and how to run more cases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.parsers import PARSERS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures memory with /proc and limits it")
@pytest.mark.parametrize("name", PARSERS)
def test_parsers_return_or_refuse(name: str) -> None:
    command = [sys.executable, "-m", "tests.fuzz.parsers", name, "--examples", "2000"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert found.returncode == 0, (found.stdout + found.stderr)[-6000:]
    assert "accepted" in found.stdout
