"""Cost of comparing layers: one forward pass for all layers, relative to one embedding pass in the same run.

    python -m benchmarks.layers MODEL [--rows 500] [--rounds 3] [--data DIR] [--save]

The first rows of SST-2 and the first sentences of CoNLL-2003. The embedding pass is `Embedder` on the last layer: mean
pooling for texts, and all token vectors for tagging. The two alternate; the best round counts. The cost of the
probe heads is reported separately.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.finetune_sst2 import SST2
from benchmarks.timing import describe_machine, save_results
from regard import Embedder
from regard.data.readers import read_tagged_examples, read_text_examples
from regard.events import drain
from regard.inference.load_model import load_model
from regard.interpret.probes.layers import score_layers


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="model folder or name")
    parser.add_argument("--rows", type=int, default=500, help="number of texts")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds")
    parser.add_argument(
        "--data", type=Path, default=SST2.parent, metavar="DIR", help="folder with sst2/ and conll2003/"
    )
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/layers.json")
    options = parser.parse_args(arguments)
    print(describe_machine())
    examples: dict[str, list[Any]] = {
        "classify": list(read_text_examples(options.data / "sst2" / "train.tsv", task="classify").examples),
        "tag": list(read_tagged_examples(options.data / "conll2003" / "eng.train").examples),
    }
    results = {
        task: measure(options.model, task_examples[: options.rows], rounds=options.rounds, pooling=pooling)
        for (task, task_examples), pooling in zip(examples.items(), ("mean", "none"), strict=True)
    }
    for task, seconds in results.items():
        print(task, seconds)
    if options.save:
        print(save_results("layers", {"model": options.model, "rows": options.rows, **results}))


def measure(model: str, examples: list[Any], *, rounds: int, pooling: str) -> dict[str, float]:
    """Seconds of each part in its best round. 20% of the examples are dev data; each example is encoded once."""
    embedder = Embedder(model, pooling=pooling).fit()
    texts = [example.text for example in examples]
    cut = len(examples) * 4 // 5
    embedding = reading = heads = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        embedder.transform(texts)
        embedding = min(embedding, time.perf_counter() - begin)
        report = drain(score_layers(load_model(model), examples[:cut], examples[cut:]))
        reading, heads = min(reading, report.seconds_reading), min(heads, report.seconds_heads)
    seconds = {"embedding": embedding, "reading": reading, "heads": heads, "ratio": reading / embedding}
    return {name: round(value, 3) for name, value in seconds.items()}


if __name__ == "__main__":
    main()
