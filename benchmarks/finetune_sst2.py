"""Fine-tuning quality: a pretrained BERT on SST-2, accuracy on the dev set for each seed.

    python -m benchmarks.finetune_sst2 MODEL [--data DIR] [--seeds 3] [--set KEY=VALUE]
                                       [--device auto] [--keep NAME]

One configuration for every model and seed, configs/tasks/sst2.toml, on all of DIR/train.tsv. The accuracy is measured
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

from benchmarks.race import keep
from regard.data.examples import TextExample
from regard.data.readers import ExampleSet, read_text_examples
from regard.events import drain
from regard.training.finetuning.config import FineTuningConfig
from regard.training.finetuning.run import fine_tune

ROOT = Path(__file__).resolve().parents[1]
SST2 = ROOT.parent / "shared" / "data" / "sst2"
RECIPE = ROOT / "configs" / "tasks" / "sst2.toml"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--data", type=Path, default=SST2, metavar="DIR")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--keep", metavar="NAME", help="write benchmarks/results/NAME.json")
    options = parser.parse_args(arguments)
    train, dev = rows(options.data / "train.tsv"), rows(options.data / "dev.tsv")
    found = accuracies(options.model, train, dev, seeds=options.seeds, settings=options.settings, device=options.device)
    figures = {
        "model": options.model,
        "train": len(train.examples),
        "dev": len(dev.examples),
        "settings": options.settings,
        "accuracy": found,
        "mean": round(sum(found) / len(found), 4),
    }
    if options.keep:
        print(keep(options.keep, figures), file=sys.stderr)
    print(json.dumps(figures))


def rows(path: Path) -> ExampleSet[TextExample]:
    """The sentences and their labels."""
    return read_text_examples(path, task="classify", labeled=True)


def accuracies(
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
    config = FineTuningConfig.load(RECIPE, overrides=overrides)
    with tempfile.TemporaryDirectory() as scratch:
        events = fine_tune("classify", train, dev, model=os.fspath(model), output=scratch, config=config, device=device)
        report = drain(events)
    return [round(one.scores["accuracy"] / 100, 4) for one in report.seeds]


if __name__ == "__main__":
    main()
