"""The built-in translators: trained on Tatoeba pairs, evaluated, and written as a folder with a model card.

    python -m benchmarks.tatoeba de-en|fr-en [--config configs/tatoeba.toml] [--data DIR] [--work DIR] [--resume]
                                             [--output DIR] [--set KEY=VALUE ...] [--device auto] [--keep]

2,000 pairs are held out for one final evaluation, and 2,000 for evaluation after each epoch; no sentence of either, on
either side, is in the training data. What is evaluated is what is written: the weights in half precision. The folder
is src/regard/builtin/regard-de-en, at most 16 MB; its card is made from benchmarks/tatoeba.md and the figures, which
--keep also writes to benchmarks/results. The result is one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.race import keep, machine
from benchmarks.translate import show
from regard.data.translation_pairs import TranslationPair, read_translation_pairs, split_held_out
from regard.device import choose_device
from regard.events import drain
from regard.inference.generation.beam_search import Beam
from regard.inference.translation.translator import Translator, bleu, load_translator, save_translator
from regard.training.translation.config import TranslationConfig
from regard.training.translation.run import train_translator
from regard.training.translation.trainer import TranslationReport

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
BUILT_IN = ROOT / "src" / "regard" / "builtin"
CARD = Path(__file__).with_suffix(".md")
LARGEST = 16_000_000  # bytes
HELD_OUT, BEAM = 2000, 5
# Archive, language, and the sentence of the lectures.
PAIRS = {
    "de-en": ("tatoeba-en-de/deu-eng.zip", "German", "Ich muss auf den Markt gehen."),
    "fr-en": ("tatoeba-en-fr/fra-eng.zip", "French", "Je suis étudiant."),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pair", choices=sorted(PAIRS))
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "tatoeba.toml", metavar="FILE")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR")
    parser.add_argument("--work", type=Path, metavar="DIR", help="folder of the run; --resume continues it")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: the folder in the package")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, metavar="N")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results/regard-PAIR.json")
    options = parser.parse_args(arguments)
    output = options.output or BUILT_IN / f"regard-{options.pair}"
    with tempfile.TemporaryDirectory() as folder:
        figures = run(options, options.work or Path(folder) / "run", output)
    if options.keep:
        print(keep(f"regard-{options.pair}", figures), file=sys.stderr)
    print(json.dumps(figures))


def run(options: argparse.Namespace, work: Path, output: Path) -> dict[str, Any]:
    """Train, convert to half precision, evaluate once, and write."""
    archive, language, sentence = PAIRS[options.pair]
    config = TranslationConfig.read(options.config, overrides=options.set)
    train, dev, test = split_held_out(
        read_translation_pairs(options.data / archive, columns="1,0"), None, out=options.held_out, seed=config.run.seed
    )
    assert test is not None
    events = train_translator(train, dev, output=work, config=config, resume=options.resume, device=options.device)
    report = drain(events, show)
    translator = load_translator(work, device=choose_device(options.device))
    translator.model.half().float()  # as it will be read
    figures = {
        "pair": options.pair,
        "set": options.set,
        "parameters": report.parameters,
        "pairs": {"train": len(train.examples), "dev": len(dev.examples), "test": len(test.examples)},
        "epochs": len(report.outcome.history),
        "kept": report.outcome.epochs,
        "dev": report.outcome.scores,
        "test": scored(translator, test.examples),
        "lecture": lecture(translator, sentence, {"train": train.examples, "dev": dev.examples, "test": test.examples}),
        "minutes": round(report.outcome.seconds / 60, 1),
        "machine": machine(),
    }
    card = card_of(figures, report, language=language, name=f"regard-{options.pair}")
    translator.model.half()
    save_translator(translator, output, files={"README.md": card.encode()})
    size = sum(file.stat().st_size for file in output.rglob("*") if file.is_file())
    if size > LARGEST:
        raise SystemExit(f"{output} has {size:,} bytes, more than {LARGEST:,}: take a smaller model or vocabulary")
    return {**figures, "bytes": size}


def scored(translator: Translator, pairs: Sequence[TranslationPair]) -> dict[str, Any]:
    found = translator.translate([pair.source for pair in pairs], beam=Beam(num_beams=BEAM))
    scores = bleu([several[0].text for several in found], [pair.target for pair in pairs])
    return {"beam": BEAM, **asdict(scores)}


def lecture(translator: Translator, sentence: str, parts: dict[str, list[TranslationPair]]) -> dict[str, Any]:
    """The translation of the lectures' sentence, and its occurrences in the data."""
    found = translator.translate([sentence], beam=Beam(num_beams=BEAM))[0][0]
    stands = {name: [pair.target for pair in pairs if pair.source == sentence] for name, pairs in parts.items()}
    return {"sentence": sentence, "translation": found.text, "stands": stands}


def card_of(figures: dict[str, Any], report: TranslationReport, *, language: str, name: str) -> str:
    model, told = report.settings["model"], figures["lecture"]
    learned = told["stands"]["train"]
    return CARD.read_text(encoding="utf-8").format(
        name=name,
        language=language,
        num_hidden_layers=model["num_hidden_layers"],
        hidden_size=model["hidden_size"],
        num_attention_heads=model["num_attention_heads"],
        intermediate_size=model["intermediate_size"],
        vocab_size=report.settings["vocabulary"]["vocab_size"],
        millions=figures["parameters"] / 1e6,
        dev=figures["dev"],
        test=figures["test"],
        pairs=figures["pairs"],
        sentence=told["sentence"],
        translation=told["translation"],
        known=f"is in what it learned from, as {_quoted(learned)}" if learned else "is not in what it learned from",
        epochs=figures["epochs"],
        kept=len(figures["kept"]),
        minutes=figures["minutes"],
        machine=figures["machine"],
        pair=figures["pair"],
    )


def _quoted(texts: Sequence[str]) -> str:
    return ", ".join(f'"{text}"' for text in texts)


if __name__ == "__main__":
    main()
