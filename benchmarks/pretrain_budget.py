"""Quality for a fixed time budget: scores after pretraining for a given time on one device.

    python -m benchmarks.pretrain_budget --corpus FILES --heldout FILES [--config configs/bert-small-300s.toml]
                                         [--budget 300s] [--set KEY=VALUE] [--output DIR] [--sst2 DIR] [--save NAME]

Runs `regard pretrain bert`, which evaluates on the held-out text (the first 2,048 rows of 128 tokens, 15% of the
positions, all replaced by [MASK]), then evaluates the model on SST-2: fine-tuned with three seeds, and with frozen
features. Set vocabulary.path to compare with other models: losses of different vocabularies are not comparable.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import features_sst2, finetune_sst2
from benchmarks.timing import save_results
from regard.device import choose_device
from regard.events import Event, Note, drain
from regard.training.events import PretrainingPlan
from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.run import pretrain

SEEDS = 3


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", nargs="+", required=True, metavar="FILES", help="training text")
    parser.add_argument("--heldout", nargs="+", required=True, metavar="FILES", help="evaluation text")
    parser.add_argument("--config", default="configs/bert-small-300s.toml", metavar="FILE")
    parser.add_argument("--budget", metavar="TIME", help="such as 300s or 5min")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting")
    parser.add_argument("--output", metavar="DIR", help="parent folder of the run; default: temporary")
    parser.add_argument(
        "--sst2", type=Path, default=finetune_sst2.SST2, metavar="DIR", help="folder with the SST-2 files"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json")
    options = parser.parse_args(arguments)
    overrides = [*options.set, *([f"schedule.budget={options.budget}"] if options.budget else [])]
    config = PretrainingConfig.read(options.config, family="bert", overrides=overrides)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(options.output or scratch, "run")
        results = pretrain_and_evaluate(config, options, folder)
    if options.save:
        print(save_results(options.save, results), file=sys.stderr)
    print(json.dumps(results))


def pretrain_and_evaluate(config: PretrainingConfig, options: argparse.Namespace, folder: Path) -> dict[str, object]:
    plan: dict[str, Any] = {}

    def on_event(event: Event) -> None:
        if isinstance(event, PretrainingPlan):
            plan.update(event.model_dump())
        if isinstance(event, Note | PretrainingPlan):
            print(event.line(), file=sys.stderr)

    device = choose_device(options.device)
    result = drain(pretrain(config, options.corpus, folder, held_out=options.heldout, device=device), on_event)
    train, dev = (finetune_sst2.read_sst2(options.sst2 / name) for name in ("train.tsv", "dev.tsv"))
    accuracy = finetune_sst2.dev_accuracies(folder, train, dev, seeds=SEEDS, device=options.device)
    return {
        "config": options.config,
        "seconds": round(result.seconds, 1),
        "steps": result.steps,
        "tokens": result.tokens,
        "tokens_per_second": round(result.tokens / result.seconds),
        "expected_loss": plan.get("expected_loss"),
        "scores": result.scores,
        "sst2": {"accuracy": accuracy, "mean": sum(accuracy) / len(accuracy)},
        "features": features_sst2.feature_accuracies(folder, options.sst2, device=options.device),
    }


if __name__ == "__main__":
    main()
