"""Translation quality: a model trained on Multi30k with a configuration, BLEU on the test set of 2016.

    python -m benchmarks.translate [--config configs/multi30k-transformer.toml] [--pair en-de] [--data DIR]
                                   [--output DIR] [--beam 5] [--set KEY=VALUE ...] [--device auto] [--save NAME]
                                   [--tune]

Everything is selected on val: the epoch or the average, the number of epochs and, with --tune, which does not open
the test set, the settings. The test set is translated once, at the end; BLEU is sacrebleu's on detokenized text, cased
and lowercased (-lc). The result is one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.timing import save_results
from regard.data.translation_pairs import read_translation_pairs
from regard.device import choose_device
from regard.events import Event, drain
from regard.inference.generation.beam_search import Beam
from regard.inference.translation.translator import bleu, load_translator
from regard.training.events import AverageEvaluated, Evaluated
from regard.training.recipes.translation.config import TranslationConfig
from regard.training.recipes.translation.recipe import train_translator

ROOT = Path(__file__).resolve().parents[1]
MULTI30K = ROOT.parent / "shared" / "data" / "multi30k"
TEST = "test_2016_flickr"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "multi30k-transformer.toml", metavar="FILE")
    parser.add_argument("--pair", default="en-de", metavar="SRC-TGT", help="en-de, en-fr, de-en, fr-en, ...")
    parser.add_argument("--data", type=Path, default=MULTI30K, metavar="DIR", help="folder with the files of Multi30k")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder for the translator")
    parser.add_argument("--beam", type=int, default=5, help="number of beams on the test set")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="override settings")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--tune", action="store_true", help="evaluate on val instead of the test set")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json")
    options = parser.parse_args(arguments)
    config = TranslationConfig.read(options.config, overrides=options.set)
    with tempfile.TemporaryDirectory() as folder:
        output = options.output or Path(folder) / "translator"
        name = "val" if options.tune else TEST
        results = train_and_evaluate(
            config, options.data, options.pair, output, test=name, num_beams=options.beam, device=options.device
        )
    results = {"config": options.config.name, "set": options.set, **results}
    if options.save:
        print(save_results(options.save, results), file=sys.stderr)
    print(json.dumps(results))


def train_and_evaluate(
    config: TranslationConfig, data: Path, pair: str, output: Path, *, test: str, num_beams: int, device: str
) -> dict[str, Any]:
    """Train, select on val, and translate the set `test` once."""
    sides = pair.split("-")
    train, dev, test_set = (
        read_translation_pairs(*(data / f"{name}.{side}.gz" for side in sides)) for name in ("train", "val", test)
    )
    begin = time.perf_counter()
    report = drain(train_translator(train, dev, output=output, config=config, device=device), print_scores)
    training_seconds = time.perf_counter() - begin
    translator = load_translator(output, device=choose_device(device))
    begin = time.perf_counter()
    translations = translator.translate(
        [example.source for example in test_set.examples], beam=Beam(num_beams=num_beams)
    )
    seconds = time.perf_counter() - begin
    scores = bleu(
        [candidates[0].text for candidates in translations], [example.target for example in test_set.examples]
    )
    return {
        "pair": pair,
        "model": report.model,
        "parameters": report.parameters,
        "device": report.device,
        "epochs": len(report.outcome.history),
        "kept": report.outcome.epochs,
        "dev": report.outcome.scores,
        "test": {"name": test, "sentences": len(test_set.examples), "beam": num_beams, **asdict(scores)},
        "minutes": round(training_seconds / 60, 2),
        "translating_seconds": round(seconds, 2),
    }


def print_scores(event: Event) -> None:
    if isinstance(event, Evaluated | AverageEvaluated):
        print(event.line(), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
