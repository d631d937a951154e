"""The sequence-reversal lesson with 20 steps and 16 features: accuracy and cost with and without attention.

    python -m benchmarks.lesson_reverse

Wall-clock time is unreliable on a busy machine, so CPU time is recorded as well.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

from benchmarks.race import keep

COMMAND = ["regard", "lesson", "reverse", "--steps", "20", "--features", "16", "--json"]
KEPT = (
    "score",
    "recipe",
    "train_token_accuracy",
    "test_token_accuracy",
    "test_sequence_accuracy",
    "alignment_accuracy",
    "epochs",
    "seconds",
)


def main() -> None:
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", *COMMAND], stdout=subprocess.PIPE, text=True, check=True)
    seconds = time.perf_counter() - begin
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    document = json.loads(done.stdout)
    figures = {
        "command": " ".join(COMMAND),
        "setting": document["setting"],
        "seconds": round(seconds, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "runs": [{name: run[name] for name in KEPT} for run in document["runs"]],
        "test_token_accuracy_by_length": {
            entry["steps"]: {run["score"]: run["test_token_accuracy"] for run in entry["runs"]}
            for entry in document["lengths"]
        },
    }
    print(keep("lesson_reverse", figures))


if __name__ == "__main__":
    main()
