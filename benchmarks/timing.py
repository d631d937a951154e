"""Timing on a noisy machine: implementations alternate, and the best round of each counts."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def best_times(implementations: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, float]:
    """Return the best time of each implementation in seconds over `rounds` rounds, after one warm-up round."""
    best = dict.fromkeys(implementations, float("inf"))
    for number in range(rounds + 1):
        for name, implementation in implementations.items():
            begin = time.perf_counter()
            implementation()
            if number:
                best[name] = min(best[name], time.perf_counter() - begin)
    return best


def describe_machine() -> str:
    """The CPU, the GPU if there is one, and the torch version."""
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{os.cpu_count()} cores {model}{gpu}, torch {torch.__version__}"


def save_results(name: str, results: Mapping[str, object]) -> Path:
    """Write results to benchmarks/results/NAME.json with date, commit and machine."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    document = {"date": str(date.today()), "commit": commit.stdout.strip(), "machine": describe_machine(), **results}
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path
