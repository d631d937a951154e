"""Translation quality: a model trained on Multi30k with a configuration, BLEU on the test set of 2016.

    python -m benchmarks.translate [--config configs/multi30k-transformer.toml] [--pair en-de] [--data DIR]
                                   [--output DIR] [--beam 5] [--set KEY=VALUE ...] [--device auto] [--keep NAME]
                                   [--choose]

Everything is selected on val: the epoch or the average, the number of epochs and, with --choose, which does not open
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

from benchmarks.race import keep
from regard.data.translation_pairs import read_translation_pairs
from regard.device import choose_device
from regard.events import Event, drain
from regard.inference.generation.beam_search import Beam
from regard.inference.translation.translator import bleu, load_translator
from regard.training.events import AverageEvaluated, Evaluated
from regard.training.translation.config import TranslationConfig
from regard.training.translation.run import train_translator

ROOT = Path(__file__).resolve().parents[1]
MULTI30K = ROOT.parent / "shared" / "data" / "multi30k"
TEST = "test_2016_flickr"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "multi30k-transformer.toml", metavar="FILE")
    parser.add_argument("--pair", default="en-de", metavar="SRC-TGT", help="en-de, en-fr, de-en, fr-en, ...")
    parser.add_argument("--data", type=Path, default=MULTI30K, metavar="DIR")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder for the translator")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--choose", action="store_true", help="evaluate on val instead of the test set")
    parser.add_argument("--keep", metavar="NAME", help="write benchmarks/results/NAME.json")
    options = parser.parse_args(arguments)
    config = TranslationConfig.read(options.config, overrides=options.set)
    with tempfile.TemporaryDirectory() as folder:
        output = options.output or Path(folder) / "translator"
        name = "val" if options.choose else TEST
        figures = run(config, options.data, options.pair, output, test=name, width=options.beam, device=options.device)
    figures = {"config": options.config.name, "set": options.set, **figures}
    if options.keep:
        print(keep(options.keep, figures), file=sys.stderr)
    print(json.dumps(figures))


def run(
    config: TranslationConfig, data: Path, pair: str, output: Path, *, test: str, width: int, device: str
) -> dict[str, Any]:
    """Train, select on val, and translate the set `test` once."""
    sides = pair.split("-")
    train, dev, last = (
        read_translation_pairs(*(data / f"{name}.{side}.gz" for side in sides)) for name in ("train", "val", test)
    )
    begin = time.perf_counter()
    report = drain(train_translator(train, dev, output=output, config=config, device=device), show)
    trained = time.perf_counter() - begin
    translator = load_translator(output, device=choose_device(device))
    begin = time.perf_counter()
    found = translator.translate([one.source for one in last.examples], beam=Beam(num_beams=width))
    seconds = time.perf_counter() - begin
    scores = bleu([several[0].text for several in found], [one.target for one in last.examples])
    return {
        "pair": pair,
        "model": report.model,
        "parameters": report.parameters,
        "device": report.device,
        "epochs": len(report.outcome.history),
        "kept": report.outcome.epochs,
        "dev": report.outcome.scores,
        "test": {"name": test, "sentences": len(last.examples), "beam": width, **asdict(scores)},
        "minutes": round(trained / 60, 2),
        "translating_seconds": round(seconds, 2),
    }


def show(event: Event) -> None:
    if isinstance(event, Evaluated | AverageEvaluated):
        print(event.line(), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
