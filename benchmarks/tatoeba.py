"""The built-in translators: trained on Tatoeba pairs, evaluated, and written as a folder with a model card.

    python -m benchmarks.tatoeba de-en|fr-en [--config configs/tatoeba.toml] [--data DIR] [--work DIR] [--resume]
                                             [--output DIR] [--set KEY=VALUE ...] [--device auto] [--save]

2,000 pairs are held out for one final evaluation, and 2,000 for evaluation after each epoch; no sentence of either, on
either side, is in the training data. What is evaluated is what is written: the weights in half precision. The folder
is src/regard/builtin/regard-de-en, at most 16 MB; its card is made from benchmarks/tatoeba.md and the results, which
--save also writes to benchmarks/results. The result is one line of JSON.
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

from benchmarks.timing import describe_machine, save_results
from benchmarks.translate import print_scores
from regard.data.readers import TableOptions
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
MAX_BYTES = 16_000_000
HELD_OUT, NUM_BEAMS = 2000, 5
# Archive, source language, and the example sentence of the lectures.
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
    parser.add_argument("--resume", action="store_true", help="continue the run in --work")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: the folder in the package")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, metavar="N", help="pairs for dev and for test, each")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="override settings")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/regard-PAIR.json")
    options = parser.parse_args(arguments)
    output = options.output or BUILT_IN / f"regard-{options.pair}"
    with tempfile.TemporaryDirectory() as folder:
        results = train_and_evaluate(options, options.work or Path(folder) / "run", output)
    if options.save:
        print(save_results(f"regard-{options.pair}", results), file=sys.stderr)
    print(json.dumps(results))


def train_and_evaluate(options: argparse.Namespace, work: Path, output: Path) -> dict[str, Any]:
    """Train, convert to half precision, evaluate once, and write."""
    archive, language, sentence = PAIRS[options.pair]
    config = TranslationConfig.read(options.config, overrides=options.set)
    train, dev, test = split_held_out(
        read_translation_pairs(options.data / archive, table=TableOptions(columns=("1", "0"))),
        None,
        out=options.held_out,
        seed=config.run.seed,
    )
    assert test is not None
    events = train_translator(train, dev, output=work, config=config, resume=options.resume, device=options.device)
    report = drain(events, print_scores)
    translator = load_translator(work, device=choose_device(options.device))
    translator.model.half().float()  # round the weights to half precision, as they are stored
    results = {
        "pair": options.pair,
        "set": options.set,
        "parameters": report.parameters,
        "pairs": {"train": len(train.examples), "dev": len(dev.examples), "test": len(test.examples)},
        "epochs": len(report.outcome.history),
        "kept": report.outcome.epochs,
        "dev": report.outcome.scores,
        "test": evaluate_bleu(translator, test.examples),
        "lecture": lecture_example(
            translator, sentence, {"train": train.examples, "dev": dev.examples, "test": test.examples}
        ),
        "minutes": round(report.outcome.seconds / 60, 1),
        "machine": describe_machine(),
    }
    card = model_card(results, report, language=language, name=f"regard-{options.pair}")
    translator.model.half()
    save_translator(translator, output, files={"README.md": card.encode()})
    size = sum(file.stat().st_size for file in output.rglob("*") if file.is_file())
    if size > MAX_BYTES:
        raise SystemExit(f"{output} has {size:,} bytes, more than {MAX_BYTES:,}: use a smaller model or vocabulary")
    return {**results, "bytes": size}


def evaluate_bleu(translator: Translator, pairs: Sequence[TranslationPair]) -> dict[str, Any]:
    translations = translator.translate([pair.source for pair in pairs], beam=Beam(num_beams=NUM_BEAMS))
    scores = bleu([candidates[0].text for candidates in translations], [pair.target for pair in pairs])
    return {"beam": NUM_BEAMS, **asdict(scores)}


def lecture_example(translator: Translator, sentence: str, parts: dict[str, list[TranslationPair]]) -> dict[str, Any]:
    """The translation of the lectures' sentence, and its occurrences in the data."""
    translation = translator.translate([sentence], beam=Beam(num_beams=NUM_BEAMS))[0][0]
    occurrences = {name: [pair.target for pair in pairs if pair.source == sentence] for name, pairs in parts.items()}
    return {"sentence": sentence, "translation": translation.text, "stands": occurrences}


def model_card(results: dict[str, Any], report: TranslationReport, *, language: str, name: str) -> str:
    model, example = report.settings["model"], results["lecture"]
    references = example["stands"]["train"]
    return CARD.read_text(encoding="utf-8").format(
        name=name,
        language=language,
        num_hidden_layers=model["num_hidden_layers"],
        hidden_size=model["hidden_size"],
        num_attention_heads=model["num_attention_heads"],
        intermediate_size=model["intermediate_size"],
        vocab_size=report.settings["vocabulary"]["vocab_size"],
        millions=results["parameters"] / 1e6,
        dev=results["dev"],
        test=results["test"],
        pairs=results["pairs"],
        sentence=example["sentence"],
        translation=example["translation"],
        known=f"is in the training data, as {_quoted(references)}" if references else "is not in the training data",
        epochs=results["epochs"],
        averaged=len(results["kept"]),
        minutes=results["minutes"],
        machine=results["machine"],
        pair=results["pair"],
    )


def _quoted(texts: Sequence[str]) -> str:
    return ", ".join(f'"{text}"' for text in texts)


if __name__ == "__main__":
    main()
