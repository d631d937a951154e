"""The studio load benchmark at a small size: a server process under malformed requests and overload."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def measured(*options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.studio_load", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.long
def test_malformed_requests(page_built: None, tiny_bert_folder: Path) -> None:
    found = measured("--only", "fuzz", "--requests", "400", "--model", str(tiny_bert_folder))["fuzz"]
    assert found["wrong"] == []  # no 5xx, no reset, no connection without a response
    assert {"400", "401", "413"} <= set(found["statuses"])
    assert found["growth MB"] < 50


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_malformed_requests(page_built: None) -> None:
    found = measured("--only", "fuzz")["fuzz"]
    assert found["requests"] == 10_000 and found["wrong"] == []
    assert found["growth MB"] < 50


@pytest.mark.slow
def test_overload_and_slow_clients(page_built: None, tiny_bert_folder: Path) -> None:
    """The benchmark measures latencies; this test checks that every client gets a response."""
    found = measured("--only", "overload,slow", "--seconds", "3", "--model", str(tiny_bert_folder))
    load, slow = found["overload"], found["slow"]
    assert load["0.9x"]["lost"] == load["4x"]["lost"] == 0
    assert load["4x"]["shed"] > 0 and load["4x"]["shed without Retry-After"] == 0
    for name in ("body, one byte a second", "body that stops", "headers, one byte a second"):
        assert slow[name]["answer"] == "HTTP/1.1 408" and 4.9 < slow[name]["seconds"] < 15
