"""Evaluate the built-in BERT, and write it to src/regard/builtin with a model card made from the figures.

    python -m benchmarks.builtin_bert MODEL --events FILE ... [--device auto]     evaluate, one part at a time
    python -m benchmarks.builtin_bert MODEL --write                               write, from the stored figures

MODEL is the output of the last `regard pretrain` run, FILE the events.jsonl of all runs in order. Evaluated on held-out
text (masked tokens, next sentences), SST-2 (fine-tuned, and with frozen features) and the cloze test in blanks.tsv;
stored in benchmarks/results/regard-bert.json. The package contains the weights in half precision.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks import features_sst2, finetune_sst2
from benchmarks.blanks import BLANKS, TOP, answers, read_blanks
from benchmarks.race import RESULTS, keep
from regard.checkpoints.loading import write_model
from regard.data.corpus import Corpus, build_corpus
from regard.device import choose_device
from regard.models import Bert
from regard.text import Tokenizer
from regard.training.pretraining import evaluate
from regard.training.pretraining.objectives import masking_for
from regard.training.pretraining.row_sampler import TokenStream

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "src" / "regard" / "builtin" / "regard-bert"
CARD = Path(__file__).with_suffix(".md")
DATA = ROOT.parent / "shared" / "data"
KEPT = "regard-bert"
LAYER = 6  # whose vectors serve best as features; the last layer's are told beside them


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--events", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="folder with corpus/ and sst2/")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/regard-heldout"), metavar="DIR")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--write", action="store_true", help="write src/regard/builtin/regard-bert without evaluating")
    options = parser.parse_args(arguments)
    model, tokenizer = regard.load(options.model)
    assert isinstance(model, Bert) and tokenizer is not None
    if not options.write:
        figures = {"runs": [run(path) for path in options.events]}
        for name, value in judged(model, tokenizer, options):
            figures[name] = value
            print(name, value, flush=True)
            keep(KEPT, figures)
        return
    card = card_of(json.loads((RESULTS / f"{KEPT}.json").read_text()))
    write_model(model.half(), FOLDER, files={**tokenizer.files(), "README.md": card.encode()})
    print(f"{FOLDER}: {sum(file.stat().st_size for file in FOLDER.iterdir()) / 1e6:.1f} MB")


def run(path: Path, losses: Sequence[str] = ("words", "pairs")) -> dict[str, Any]:
    """Duration of a run, and its losses at ten points."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    steps = [event for event in events if event["type"] == "step"]
    end = next(event for event in events if event["type"] == "finished")
    some = [steps[len(steps) * place // 10] for place in range(10)] + [steps[-1]]
    return {
        "steps": end["steps"],
        "tokens": end["tokens"],
        "seconds": round(end["seconds"]),
        "curve": [[event["tokens"], *(round(event["losses"][name], 3) for name in losses)] for event in some],
        "end": {name: end["scores"][name] for name in losses},
    }


def judged(model: Bert, tokenizer: Tokenizer, options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Yield each figure, the fast ones first."""
    yield "blanks", [asdict(answer) for answer in answers(model, tokenizer, read_blanks(BLANKS))]
    folder = options.scratch / f"{tokenizer.size}"
    if not (folder / "manifest.json").is_file():
        build_corpus(options.data / "corpus" / "heldout.txt.xz", folder, tokenizer=tokenizer)
    text = TokenStream.concatenate(Corpus.open(folder))
    model.to(choose_device(options.device))
    asked = masking_for(tokenizer, replace=(1.0, 0.0, 0.0))
    for length, rows in ((128, 2048), (512, 512)):
        found = evaluate.masked_lm_score(model, asked, text, tokenizer, length=length, rows=rows)
        yield f"words_{length}", asdict(found)
    yield "pairs", asdict(evaluate.next_sentence_score(model, text, tokenizer))
    sst2, device = options.data / "sst2", options.device
    for layer in (LAYER, -1):
        yield f"features_{layer}", features_sst2.accuracies(options.model, sst2, layer=layer, device=device)
    train, dev = (finetune_sst2.rows(sst2 / name) for name in ("train.tsv", "dev.tsv"))
    accuracy = finetune_sst2.accuracies(options.model, train, dev, seeds=3, device=device)
    yield "sst2", {"accuracy": accuracy, "mean": sum(accuracy) / len(accuracy)}


def card_of(figures: dict[str, Any]) -> str:
    runs, blanks = figures["runs"], figures["blanks"]
    rows = (
        f"| {number} | {each['tokens']:,} | {each['seconds']:,} | {_told(each['end']['words'])} "
        f"| {_told(each['end']['pairs'])} |"
        for number, each in enumerate(runs, start=1)
    )
    before = [sum(each["tokens"] for each in runs[:place]) for place in range(len(runs))]
    curve = (
        f"    {(past + seen) / 1e6:14,.0f}   {words:.3f}   {pairs:.3f}"
        for each, past in zip(runs, before, strict=True)
        for seen, words, pairs in each["curve"]
    )
    return CARD.read_text(encoding="utf-8").format(
        words=_told(figures["words_128"]),
        longer=_told(figures["words_512"]),
        pairs=_told(figures["pairs"]),
        count=figures["pairs"]["count"],
        tuned=_tuned(figures["sst2"]) if "sst2" in figures else "",
        last=figures["features_-1"]["mean"],
        layer=LAYER,
        best=figures[f"features_{LAYER}"]["mean scaled"],
        top=TOP,
        right=sum(blank["rank"] is not None for blank in blanks),
        blanks=len(blanks),
        date=figures["date"],
        tokens=sum(each["tokens"] for each in runs) / 1e9,
        runs="\n".join(rows),
        curve="\n".join(curve),
        answers="\n".join(map(_row, blanks)),
    )


def _tuned(found: dict[str, Any]) -> str:
    title = "SST-2 dev after fine-tuning (`configs/tasks/sst2.toml`), mean of 3 seeds"
    return f"| {title} | {found['mean']:.1%} |\n"


def _row(blank: dict[str, Any]) -> str:
    accepted, top = (", ".join(blank[key]).replace("|", "\\|") for key in ("accepted", "top"))
    return f"| {blank['rank'] or '-'} | {blank['sentence']} | {accepted} | {top} |"


def _told(score: dict[str, Any]) -> str:
    return f"{score['accuracy']:.1%}, loss {score['loss']:.3f}"


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
