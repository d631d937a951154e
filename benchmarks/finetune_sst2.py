"""Fine-tuning quality: a pretrained BERT on SST-2, accuracy on the dev set for each seed.

    python -m benchmarks.finetune_sst2 MODEL [--data DIR] [--seeds 3] [--set KEY=VALUE]
                                       [--device auto] [--save NAME]

The default settings for every model and seed, on all of DIR/train.tsv. The accuracy is measured
on DIR/dev.tsv after the last epoch, not after the best one. The result is one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.timing import save_results
from regard.data.examples import TextExample
from regard.data.readers import ExampleSet, read_text_examples
from regard.events import drain
from regard.tasks.registry import get_task
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.run import fine_tune

ROOT = Path(__file__).resolve().parents[1]
SST2 = ROOT.parent / "shared" / "data" / "sst2"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="model folder or name")
    parser.add_argument("--data", type=Path, default=SST2, metavar="DIR", help="folder with train.tsv and dev.tsv")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="override a setting"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json")
    options = parser.parse_args(arguments)
    train, dev = read_sst2(options.data / "train.tsv"), read_sst2(options.data / "dev.tsv")
    accuracy = dev_accuracies(
        options.model, train, dev, seeds=options.seeds, settings=options.settings, device=options.device
    )
    results = {
        "model": options.model,
        "train": len(train.examples),
        "dev": len(dev.examples),
        "settings": options.settings,
        "accuracy": accuracy,
        "mean": round(sum(accuracy) / len(accuracy), 4),
    }
    if options.save:
        print(save_results(options.save, results), file=sys.stderr)
    print(json.dumps(results))


def read_sst2(path: Path) -> ExampleSet[TextExample]:
    """Read sentences with their labels."""
    return read_text_examples(path, task="classify", labeled=True)


def dev_accuracies(
    model: str | os.PathLike[str],
    train: ExampleSet[TextExample],
    dev: ExampleSet[TextExample],
    *,
    seeds: int,
    device: str,
    settings: Sequence[str] = (),
) -> list[float]:
    """The accuracy on `dev` after training on `train`, for each seed from 0."""
    overrides = [f"run.num_seeds={seeds}", "training.select=last", *settings]
    defaults = {"training": get_task("classify").training_defaults}
    config = FineTuningConfig.load(overrides=["training.baseline=false", *overrides], defaults=defaults)
    with tempfile.TemporaryDirectory() as scratch:
        events = fine_tune("classify", train, dev, model=os.fspath(model), output=scratch, config=config, device=device)
        report = drain(events)
    return [round(seed.scores["accuracy"] / 100, 4) for seed in report.seeds]


if __name__ == "__main__":
    main()
