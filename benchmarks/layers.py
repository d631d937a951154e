"""Cost of comparing layers: reading a text once for all layers, against one embedding pass, as a ratio of one run.

    python -m benchmarks.layers MODEL [--rows 500] [--rounds 3] [--data DIR] [--keep]

The first rows of SST-2 and the first sentences of CoNLL-2003. The embedding pass is `Embedder` on the last layer: mean
pooling for texts, and all token vectors for tagging_task. Contestants alternate; the best round counts. The cost of the
probe heads is reported separately.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.finetune_sst2 import SST2
from benchmarks.race import keep, machine
from regard import Embedder
from regard.data.readers import read_tagged_examples, read_text_examples
from regard.inference.load_model import load_model
from regard.interpret.probes.layers import score_layers
from regard.verbs.python import drain


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=SST2.parent, metavar="DIR")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results/layers.json")
    options = parser.parse_args(arguments)
    print(machine())
    examples: dict[str, list[Any]] = {
        "classify": list(read_text_examples(options.data / "sst2" / "train.tsv", task="classify").examples),
        "tag": list(read_tagged_examples(options.data / "conll2003" / "eng.train").examples),
    }
    found = {
        task: compared(options.model, all_of[: options.rows], rounds=options.rounds, pooling=pooling)
        for (task, all_of), pooling in zip(examples.items(), ("mean", "none"), strict=True)
    }
    for task, figures in found.items():
        print(task, figures)
    if options.keep:
        print(keep("layers", {"model": options.model, "rows": options.rows, **found}))


def compared(model: str, examples: list[Any], *, rounds: int, pooling: str) -> dict[str, float]:
    """Seconds of each in its best round. 20% of the examples are dev data; each example is read once."""
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
    figures = {"embedding": embedding, "reading": reading, "heads": heads, "ratio": reading / embedding}
    return {name: round(value, 3) for name, value in figures.items()}


if __name__ == "__main__":
    main()
