"""Throughput of `regard predict` and `regard embed` on a CPU: the same model, the same texts, files in and files out.

    python -m benchmarks.predict [--texts FILE] [--count 400] [--rounds 5] [--model regard-bert] [--save]

The model is a built-in encoder with an untrained head for two classes. Both commands read a CSV file of sentences and
write Parquet, in alternating rounds of one run; the best round of each counts. The ratio is that of the CPU times,
in which other processes of a busy machine do not count; so set OMP_NUM_THREADS=1. FILE has one text per line, or is a
TSV whose first column is used; default: SST-2 beside the project.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import best_times, describe_machine, save_results
from regard.checkpoints import loading
from regard.events import drain
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.text_classification import TextClassification
from regard.verbs import find
from regard.verbs.python import LocalModels

SST2 = Path(__file__).resolve().parents[2] / "shared" / "data" / "sst2" / "train.tsv"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, default=SST2, metavar="FILE", help="text file or TSV")
    parser.add_argument("--count", type=int, default=400, help="number of texts")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds per command")
    parser.add_argument("--model", default="regard-bert", help="the encoder")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/predict.json")
    options = parser.parse_args(arguments)
    lines = options.texts.read_text(encoding="utf-8").splitlines()[: options.count]
    results = measure([line.split("\t")[0] for line in lines], options.model, rounds=options.rounds)
    if options.save:
        print(save_results("predict", results))


def measure(texts: list[str], model: str, *, rounds: int) -> dict[str, Any]:
    """Texts per second of both commands, and the ratio of their CPU times."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, source = Path(scratch, "model"), Path(scratch, "texts.csv")
        write_model(model, folder)
        with source.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["text"], *([text] for text in texts)])
        models = LocalModels("cpu")
        commands = {
            "embed": run_verb(
                "embed", models, source=source, model=str(folder), output=Path(scratch, "vectors.parquet")
            ),
            "predict": run_verb(
                "predict", models, model=str(folder), source=source, output=Path(scratch, "out.parquet")
            ),
        }
        cpu = dict.fromkeys(commands, float("inf"))
        measured = {name: measure_cpu(name, command, cpu) for name, command in commands.items()}
        best = best_times(measured, rounds=rounds)
    ratio = cpu["embed"] / cpu["predict"]
    print(f"{len(texts)} texts, {model}, best of {rounds} alternating rounds, {describe_machine()}")
    print(f"{'':<10}{'texts/s':>9}{'texts/CPU s':>13}")
    for name, seconds in best.items():
        print(f"{name:<10}{len(texts) / seconds:9.1f}{len(texts) / cpu[name]:13.1f}")
    print(f"predict / embed {ratio:.2f}")
    rates = {
        name: {
            "texts_per_second": round(len(texts) / seconds, 1),
            "texts_per_cpu_second": round(len(texts) / cpu[name], 1),
        }
        for name, seconds in best.items()
    }
    about = {"model": model, "texts": len(texts), "threads": torch.get_num_threads()}
    return {**about, "commands": rates, "ratio": round(ratio, 3)}


def measure_cpu(name: str, command: Callable[[], object], best: dict[str, float]) -> Callable[[], object]:
    """The command, which also notes its CPU time if it is the best so far."""

    def run() -> object:
        begin = time.process_time()
        result = command()
        best[name] = min(best[name], time.process_time() - begin)
        return result

    return run


def write_model(encoder_name: str, folder: Path) -> None:
    """Save the encoder with an untrained head for two classes."""
    encoder, tokenizer = loading.load(encoder_name)
    task = TextClassification(["negative", "positive"])
    model = EncoderWithHead.from_encoder(encoder, task).eval()
    FineTunedModel(task, model, tokenizer, 128).save(folder)


def run_verb(name: str, models: LocalModels, **arguments: object) -> Callable[[], object]:
    """The verb as a function; it starts anew at every call, and its model is loaded at the first."""
    verb = find(name)
    request = verb.parse({**arguments, "restart": True})
    return lambda: drain(verb.run(request, models))


if __name__ == "__main__":
    main()
