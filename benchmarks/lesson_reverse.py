"""The sequence-reversal lesson with 20 steps and 16 features: accuracy and time with and without attention.

    python -m benchmarks.lesson_reverse [OPTIONS of `regard lesson reverse`] [--save]

Wall-clock time is unreliable on a busy machine, so CPU time is recorded as well.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.timing import save_results

COMMAND = ["regard", "lesson", "reverse", "--steps", "20", "--features", "16", "--json"]
FIELDS = (
    "score",
    "recipe",
    "train_token_accuracy",
    "test_token_accuracy",
    "test_sequence_accuracy",
    "alignment_accuracy",
    "epochs",
    "seconds",
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/lesson_reverse.json")
    options, lesson_options = parser.parse_known_args(arguments)
    command = [*COMMAND, *lesson_options]
    begin = time.perf_counter()
    process = subprocess.run([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True, check=True)
    seconds = time.perf_counter() - begin
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    document = json.loads(process.stdout)
    results = {
        "command": " ".join(command),
        "setting": document["setting"],
        "seconds": round(seconds, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "runs": [{name: run[name] for name in FIELDS} for run in document["runs"]],
        "test_token_accuracy_by_length": {
            entry["steps"]: {run["score"]: run["test_token_accuracy"] for run in entry["runs"]}
            for entry in document["lengths"]
        },
    }
    print(json.dumps(results))
    if options.save:
        print(save_results("lesson_reverse", results), file=sys.stderr)


if __name__ == "__main__":
    main()
