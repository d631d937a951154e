"""Timing on a noisy machine: contestants alternate, and the best round of each counts."""

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


def race(contestants: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, float]:
    """The best time of each contestant over `rounds` rounds, after one warm-up round."""
    best = dict.fromkeys(contestants, float("inf"))
    for number in range(rounds + 1):
        for name, work in contestants.items():
            begin = time.perf_counter()
            work()
            if number:
                best[name] = min(best[name], time.perf_counter() - begin)
    return best


def machine() -> str:
    """The CPU and the torch version."""
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{os.cpu_count()} cores {model}{gpu}, torch {torch.__version__}"


def keep(name: str, figures: Mapping[str, object]) -> Path:
    """Write figures to benchmarks/results/NAME.json with date, commit and machine."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    document = {"date": str(date.today()), "commit": commit.stdout.strip(), "machine": machine(), **figures}
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path
