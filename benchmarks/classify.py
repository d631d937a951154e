"""Classifying texts on a CPU: Regard against transformers' pipeline, with the same published folder.

    python -m benchmarks.classify [--count 200] [--rounds 5] [--save]

One run: sentences of SST-2 and a DistilBERT (6 layers, 768 wide, random weights, two classes) that transformers writes,
with the vocabulary of regard-bert. Each engine has a process of its own; rounds alternate, and the best counts. The
pipeline is measured with its default, one text at a time, and with batches; the ratio is that to the better one. It is
the ratio of the CPU times, in which other processes of a busy machine count less; so set OMP_NUM_THREADS=1. All compute
in float32, and their scores are compared.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.embed import DATA, cpu_path, read_texts
from benchmarks.timing import save_results

BATCH = 32
Classify = Callable[[Sequence[str]], "list[float]"]
_engine: list[Classify] = []  # of this process


def pipeline(batch_size: int) -> Callable[[str], Classify]:
    def make(folder: str) -> Classify:
        import transformers

        classify = transformers.pipeline("text-classification", model=folder, device="cpu", top_k=None)

        def run(texts: Sequence[str]) -> list[float]:
            rows = classify(list(texts), batch_size=batch_size, truncation=True)
            return [score["score"] for row in rows for score in row if score["label"] == "LABEL_1"]

        return run

    return make


def regard_engine(folder: str) -> Classify:
    import regard

    model: Any = regard.load(folder)
    return lambda texts: [row["probabilities"]["LABEL_1"] for row in model.predict(list(texts)).predictions]


ENGINES: dict[str, Callable[[str], Classify]] = {
    "transformers pipeline": pipeline(1),
    f"transformers pipeline, batches of {BATCH}": pipeline(BATCH),
    "Regard": regard_engine,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="number of texts")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds per engine")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="folder with sst2/")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/classify.json")
    options = parser.parse_args(arguments)
    results = measure(read_texts(options.data, "sst2", options.count), rounds=options.rounds)
    print(json.dumps(results, indent=2))
    if options.save:
        print(save_results("classify", results))


def measure(texts: list[str], *, rounds: int) -> dict[str, Any]:
    best, cpu = (dict.fromkeys(ENGINES, float("inf")) for _ in range(2))
    scores: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        write_model(folder)
        processes = {
            name: stack.enter_context(
                ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_load, initargs=(name, folder))
            )
            for name in ENGINES
        }
        for number in range(rounds + 1):
            for name, process in processes.items():
                scores[name], seconds, cpu_seconds = process.submit(_run, texts).result()
                if number:
                    best[name], cpu[name] = min(best[name], seconds), min(cpu[name], cpu_seconds)
    *peers, ours = ENGINES
    rows = {
        name: {
            "texts_per_second": round(len(texts) / best[name], 1),
            "texts_per_cpu_second": round(len(texts) / cpu[name], 1),
            "largest_difference": float(np.abs(np.subtract(scores[name], scores[ours])).max()),
        }
        for name in ENGINES
    }
    ratio = min(cpu[name] for name in peers) / cpu[ours]
    about = {"path": cpu_path(), "rounds": rounds, "texts": len(texts), "threads": os.environ.get("OMP_NUM_THREADS")}
    return {**about, "engines": rows, "ratio": round(ratio, 3)}


def write_model(folder: str) -> None:
    """A DistilBERT with random weights and the tokenizer of regard-bert."""
    import torch
    import transformers

    import regard

    torch.manual_seed(0)
    _, tokenizer = regard.load("regard-bert")
    assert tokenizer is not None
    for name, data in tokenizer.files(max_length=512).items():
        Path(folder, name).write_bytes(data)
    settings = Path(folder, "tokenizer_config.json")
    document = {**json.loads(settings.read_text()), "model_input_names": ["input_ids", "attention_mask"]}
    settings.write_text(json.dumps(document))
    config = transformers.DistilBertConfig(vocab_size=tokenizer.size, num_labels=2)
    transformers.DistilBertForSequenceClassification(config).save_pretrained(folder)


def _load(name: str, folder: str) -> None:
    _engine.append(ENGINES[name](folder))


def _run(texts: Sequence[str]) -> tuple[list[float], float, float]:
    """The scores, and the seconds and CPU seconds that they took."""
    begin, cpu = time.perf_counter(), time.process_time()
    scores = _engine[0](texts)
    return scores, time.perf_counter() - begin, time.process_time() - cpu


if __name__ == "__main__":
    main()
