"""How well a pretrained BERT learns a task: fine-tuned on SST-2, its accuracy on the dev set for each seed.

    python -m benchmarks.finetune_sst2 MODEL [--data DIR] [--seeds 0 1 2] [--epochs 3] [--rate 1e-4] [--batch 32]
                                       [--device auto] [--keep NAME]

One recipe for every model, seed and device: all of DIR/train.tsv, a linear layer on the pooled [CLS], the dropout that
the model was pretrained with. The accuracy is that of DIR/dev.tsv after the last epoch, never of the best one. The
result is one line of JSON; bf16 on a GPU, float32 on a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.race import keep
from regard import TextClassifier
from regard.data.examples import Text
from regard.data.readers import read_texts
from regard.device import choose

SST2 = Path(__file__).resolve().parents[2] / "shared" / "data" / "sst2"
RATE, EPOCHS, BATCH = 1e-4, 3, 32


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--data", type=Path, default=SST2, metavar="DIR")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--batch", type=int, default=BATCH, help="texts a step")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--keep", metavar="NAME", help="write benchmarks/results/NAME.json")
    options = parser.parse_args(arguments)
    train, dev = read_rows(options.data / "train.tsv"), read_rows(options.data / "dev.tsv")
    recipe = {"epochs": options.epochs, "rate": options.rate, "batch": options.batch}
    device = choose(options.device).type
    begin = time.perf_counter()
    accuracy: dict[int, float] = {}
    for seed in options.seeds:
        accuracy[seed] = finetune(options.model, train, dev, seed=seed, device=options.device, **recipe)
        print(f"seed {seed}: {accuracy[seed]:.4f}, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    figures = {
        "model": options.model,
        "train": len(train),
        "dev": len(dev),
        **recipe,
        "device": device,
        "accuracy": {str(seed): round(value, 4) for seed, value in accuracy.items()},
        "mean": round(sum(accuracy.values()) / len(accuracy), 4),
        "seconds": round(time.perf_counter() - begin, 1),
    }
    if options.keep:
        print(keep(options.keep, figures), file=sys.stderr)
    print(json.dumps(figures))


def read_rows(path: Path) -> list[Text]:
    """The sentences and their labels."""
    return read_texts(path, task="classify", labelled=True).examples


def finetune(
    model: str | os.PathLike[str],
    train: Sequence[Text],
    dev: Sequence[Text],
    *,
    seed: int,
    epochs: int,
    rate: float,
    batch: int,
    device: str,
) -> float:
    """The accuracy on `dev` after training on `train`. The seed decides the new weights, the dropout and the order."""
    classifier = TextClassifier(os.fspath(model), epochs=epochs, rate=rate, batch=batch, seed=seed, device=device)
    classifier.fit(*_parts(train))
    return classifier.score(*_parts(dev))


def _parts(rows: Sequence[Text]) -> tuple[list[str], list[str]]:
    return [row.text for row in rows], [str(row.label) for row in rows]


if __name__ == "__main__":
    main()
