"""The built-in translators: trained on Tatoeba pairs, evaluated, and written as a folder with a model card.

    python -m benchmarks.tatoeba de-en|fr-en|de-en-postnorm|lstm-fr-en [--config FILE] [--data DIR] [--output DIR]
                                 [--work DIR] [--resume] [--set KEY=VALUE ...] [--device auto] [--save]
    python -m benchmarks.tatoeba lstm-fr-en --from-run DIR ...    a finished run of `regard train translate`

2,000 pairs are held out for one final evaluation, and 2,000 for evaluation after each epoch; no sentence of either, on
either side, is in the training data. What is evaluated is what is written: the weights in half precision or in 8 bits.
A finished run must have held out the same pairs: `--train deu-eng.zip --columns 1,0 --hold-out 2000`. The folder is
src/regard/builtin/regard-NAME, at most 16 MB; its card is made from benchmarks/tatoeba.md and the results, which
--save also writes to benchmarks/results. The result is one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.timing import describe_machine, save_results
from benchmarks.translate import print_scores
from regard.checkpoints.storage import Storage, write_compact
from regard.data.readers import ExampleSet, TableOptions
from regard.data.translation_pairs import TranslationPair, pairs_digest, read_translation_pairs, split_held_out
from regard.device import choose_device
from regard.events import drain
from regard.files.durable_folder import FolderRecord
from regard.files.json_files import read_json
from regard.inference.generation.beam_search import Beam
from regard.inference.translation.translator import Translator, bleu, load_translator
from regard.text.language import LANGUAGE, LanguageProfile
from regard.training.recipes.translation.config import TranslationConfig
from regard.training.recipes.translation.recipe import TranslationReport, train_translator
from regard.training.run_folder import REPORT

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
BUILT_IN = ROOT / "src" / "regard" / "builtin"
CARD = Path(__file__).with_suffix(".md")
MAX_BYTES = 16_000_000
HELD_OUT, NUM_BEAMS = 2000, 5
STORED = {"float16": "half precision", "int8": "8 bits"}


@dataclass(frozen=True)
class BuiltInTranslator:
    """The data, settings and storage of a translator; `sentence` is an example of the lectures."""

    archive: str
    language: str
    sentence: str
    config: str = "tatoeba.toml"
    storage: Storage = "float16"


GERMAN = ("tatoeba-en-de/deu-eng.zip", "German", "Ich muss auf den Markt gehen.")
FRENCH = ("tatoeba-en-fr/fra-eng.zip", "French", "Je suis étudiant.")
TRANSLATORS = {
    "de-en": BuiltInTranslator(*GERMAN),
    "fr-en": BuiltInTranslator(*FRENCH),
    "de-en-postnorm": BuiltInTranslator(*GERMAN, "tatoeba-postnorm.toml", "int8"),
    "lstm-fr-en": BuiltInTranslator(*FRENCH, "tatoeba-lstm.toml", "int8"),
}
Parts = Mapping[str, ExampleSet[TranslationPair]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(TRANSLATORS))
    parser.add_argument("--config", type=Path, metavar="FILE", help="default: the settings of the translator")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR")
    parser.add_argument("--work", type=Path, metavar="DIR", help="folder of the run; --resume continues it")
    parser.add_argument("--resume", action="store_true", help="continue the run in --work")
    parser.add_argument("--from-run", type=Path, metavar="DIR", help="do not train: a finished run")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: the folder in the package")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, metavar="N", help="pairs for dev and for test, each")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="override settings")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/regard-NAME.json")
    options = parser.parse_args(arguments)
    output = options.output or BUILT_IN / f"regard-{options.name}"
    with tempfile.TemporaryDirectory() as folder:
        results = evaluate_and_write(options, Path(folder), output)
    if options.save:
        print(save_results(f"regard-{options.name}", results), file=sys.stderr)
    print(json.dumps(results))


def evaluate_and_write(options: argparse.Namespace, scratch: Path, output: Path) -> dict[str, Any]:
    """Train, or take a finished run; store the weights as they are packaged, evaluate those once, and write."""
    spec = TRANSLATORS[options.name]
    config_file = options.config or ROOT / "configs" / spec.config
    if options.from_run:
        run = options.from_run
        report = TranslationReport(output=str(run), **read_json(run / REPORT))
        parts = split_pairs(options, seed=report.settings["run"]["seed"])
        record = FolderRecord.read(run)
        if record is None or record.identity["data"] != {
            name: pairs_digest(part.examples) for name, part in parts.items()
        }:
            raise SystemExit(f"{run} was trained on other data, or held out other pairs, than {options.name}")
    else:
        run = options.work or scratch / "run"
        config = TranslationConfig.read(config_file, overrides=options.set)
        parts = split_pairs(options, seed=config.run.seed)
        events = train_translator(
            parts["train"], parts["dev"], output=run, config=config, resume=options.resume, device=options.device
        )
        report = drain(events, print_scores)
    write_compact(run, scratch / "stored", storage=spec.storage)
    translator = load_translator(scratch / "stored", device=choose_device(options.device))
    results = {
        "pair": options.name,
        "set": options.set,
        "storage": spec.storage,
        "parameters": report.parameters,
        "pairs": {name: len(part.examples) for name, part in parts.items()},
        "epochs": len(report.outcome.history),
        "kept": report.outcome.epochs,
        "dev": report.outcome.scores,
        "test": evaluate_bleu(translator, parts["test"].examples),
        "test_float32": report.test.get("bleu"),
        "lecture": lecture_example(translator, spec.sentence, {name: part.examples for name, part in parts.items()}),
        "minutes": round(report.outcome.seconds / 60, 1),
        "machine": describe_machine(),
    }
    files = {"README.md": model_card(results, report, spec).encode()}
    if (profile := LanguageProfile.fit(*zip(*parts["train"].examples, strict=True), name=spec.language)) is not None:
        files[LANGUAGE] = profile.file()
    size = write_compact(run, output, storage=spec.storage, files=files)
    if size > MAX_BYTES:
        raise SystemExit(f"{output} has {size:,} bytes, more than {MAX_BYTES:,}: use a smaller model or vocabulary")
    return {**results, "bytes": size}


def split_pairs(options: argparse.Namespace, *, seed: int) -> dict[str, ExampleSet[TranslationPair]]:
    """The pairs for training, for evaluation after each epoch, and for the final evaluation."""
    pairs = read_translation_pairs(
        options.data / TRANSLATORS[options.name].archive, table=TableOptions(columns=("1", "0"))
    )
    train, dev, test = split_held_out(pairs, None, out=options.held_out, seed=seed)
    assert test is not None
    return {"train": train, "dev": dev, "test": test}


def evaluate_bleu(translator: Translator, pairs: Sequence[TranslationPair]) -> dict[str, Any]:
    translations = translator.translate([pair.source for pair in pairs], beam=Beam(num_beams=NUM_BEAMS))
    scores = bleu([candidates[0].text for candidates in translations], [pair.target for pair in pairs])
    return {"beam": NUM_BEAMS, **asdict(scores)}


def lecture_example(translator: Translator, sentence: str, parts: dict[str, list[TranslationPair]]) -> dict[str, Any]:
    """The translation of the lectures' sentence, and its occurrences in the data."""
    translation = translator.translate([sentence], beam=Beam(num_beams=NUM_BEAMS))[0][0]
    occurrences = {name: [pair.target for pair in pairs if pair.source == sentence] for name, pairs in parts.items()}
    return {"sentence": sentence, "translation": translation.text, "stands": occurrences}


def model_card(results: dict[str, Any], report: TranslationReport, spec: BuiltInTranslator) -> str:
    example, kept = results["lecture"], results["kept"]
    references = example["stands"]["train"]
    return CARD.read_text(encoding="utf-8").format(
        name=f"regard-{results['pair']}",
        language=spec.language,
        architecture=describe_architecture(report.settings["model"]),
        vocab_size=report.settings["vocabulary"]["vocab_size"],
        millions=results["parameters"] / 1e6,
        stored=STORED[spec.storage],
        dev=results["dev"],
        test=results["test"],
        pairs=results["pairs"],
        sentence=example["sentence"],
        translation=example["translation"],
        known=f"is in the training data, as {_quoted(references)}" if references else "is not in the training data",
        epochs=results["epochs"],
        weights=f"averaged over the last {len(kept)} epochs" if len(kept) > 1 else f"those of epoch {kept[0]}",
        minutes=results["minutes"],
        machine=results["machine"],
        pair=results["pair"],
    )


def describe_architecture(model: Mapping[str, Any]) -> str:
    layers = f"{model['num_hidden_layers']} encoder and {model['num_hidden_layers']} decoder layers"
    if model["family"] == "transformer":
        norm = "before each sublayer" if model["norm_first"] else "after each sublayer, as in the paper of 2017"
        return (
            f"a Transformer with\n{layers}, hidden size {model['hidden_size']},\n{model['num_attention_heads']} heads, "
            f"feed-forward size {model['intermediate_size']}, layer norm {norm}"
        )
    encoder = "bidirectional encoder, " if model["bidirectional"] else ""
    return (
        f"an LSTM with attention:\n{layers.replace('1 decoder layers', '1 decoder layer')}, {encoder}hidden size "
        f"{model['hidden_size']}, embedding size {model['embedding_size']},\n"
        f'one attention head with the score "{model["score"]}" (recipe "{model["recipe"]}")'
    )


def _quoted(texts: Sequence[str]) -> str:
    return ", ".join(f'"{text}"' for text in texts)


if __name__ == "__main__":
    main()
