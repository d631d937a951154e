"""Evaluate the built-in BERT, and write it to src/regard/builtin with a model card generated from the results.

    python -m benchmarks.builtin_bert MODEL --events FILE ... [--device auto]     evaluate, one part at a time
    python -m benchmarks.builtin_bert MODEL --write                               write, from the stored results

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
from benchmarks.blanks import BLANKS, TOP, predict_blanks, read_blanks
from benchmarks.timing import RESULTS, save_results
from regard.checkpoints.loading import write_model
from regard.data.corpus import Corpus, build_corpus
from regard.device import choose_device
from regard.models import Bert
from regard.text import Tokenizer
from regard.training.recipes.pretraining import evaluate
from regard.training.recipes.pretraining.objectives import masking_for
from regard.training.recipes.pretraining.token_stream import TokenStream

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "src" / "regard" / "builtin" / "regard-bert"
CARD = Path(__file__).with_suffix(".md")
DATA = ROOT.parent / "shared" / "data"
NAME = "regard-bert"
LAYER = 6  # the best layer for frozen features; the last layer is reported as well


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="model folder or name")
    parser.add_argument("--events", nargs="+", type=Path, default=[], metavar="FILE", help="events.jsonl of each run")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="folder with corpus/ and sst2/")
    parser.add_argument(
        "--scratch",
        type=Path,
        default=Path("/tmp/regard-heldout"),
        metavar="DIR",
        help="folder for the tokenized held-out text",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--write", action="store_true", help="write src/regard/builtin/regard-bert without evaluating")
    options = parser.parse_args(arguments)
    model, tokenizer = regard.load(options.model)
    assert isinstance(model, Bert) and tokenizer is not None
    if not options.write:
        results = {"runs": [summarize_run(path) for path in options.events]}
        for name, value in evaluate_model(model, tokenizer, options):
            results[name] = value
            print(name, value, flush=True)
            save_results(NAME, results)
        return
    card = model_card(json.loads((RESULTS / f"{NAME}.json").read_text()))
    write_model(model.half(), FOLDER, files={**tokenizer.files(), "README.md": card.encode()})
    print(f"{FOLDER}: {sum(file.stat().st_size for file in FOLDER.iterdir()) / 1e6:.1f} MB")


def summarize_run(path: Path, losses: Sequence[str] = ("mlm", "nsp")) -> dict[str, Any]:
    """The duration of a pretraining run, its final scores, and its losses at eleven points."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    steps = [event for event in events if event["type"] == "step"]
    end = next(event for event in events if event["type"] == "finished")
    points = [steps[len(steps) * tenth // 10] for tenth in range(10)] + [steps[-1]]
    return {
        "steps": end["steps"],
        "tokens": end["tokens"],
        "seconds": round(end["seconds"]),
        "curve": [[event["tokens"], *(round(event["losses"][name], 3) for name in losses)] for event in points],
        "end": {name: end["scores"][name] for name in losses},
    }


def evaluate_model(model: Bert, tokenizer: Tokenizer, options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each result, the fast ones first."""
    yield "blanks", [asdict(prediction) for prediction in predict_blanks(model, tokenizer, read_blanks(BLANKS))]
    folder = options.scratch / f"{tokenizer.size}"
    if not (folder / "regard.json").is_file():
        build_corpus(options.data / "corpus" / "heldout.txt.xz", folder, tokenizer=tokenizer)
    text = TokenStream.concatenate(Corpus.open(folder))
    model.to(choose_device(options.device))
    masking = masking_for(tokenizer, replace=(1.0, 0.0, 0.0))
    for length, rows in ((128, 2048), (512, 512)):
        score = evaluate.masked_lm_score(model, masking, text, tokenizer, length=length, rows=rows)
        yield f"words_{length}", score
    yield "pairs", evaluate.next_sentence_score(model, text, tokenizer)
    sst2, device = options.data / "sst2", options.device
    for layer in (LAYER, -1):
        yield f"features_{layer}", features_sst2.feature_accuracies(options.model, sst2, layer=layer, device=device)
    train, dev = (finetune_sst2.read_sst2(sst2 / name) for name in ("train.tsv", "dev.tsv"))
    accuracy = finetune_sst2.dev_accuracies(options.model, train, dev, seeds=3, device=device)
    yield "sst2", {"accuracy": accuracy, "mean": sum(accuracy) / len(accuracy)}


def model_card(results: dict[str, Any]) -> str:
    runs, blanks = results["runs"], results["blanks"]
    rows = (
        f"| {number} | {run['tokens']:,} | {run['seconds']:,} | {_format_score(run['end']['mlm'])} "
        f"| {_format_score(run['end']['nsp'])} |"
        for number, run in enumerate(runs, start=1)
    )
    offsets = [sum(run["tokens"] for run in runs[:index]) for index in range(len(runs))]
    curve = (
        f"    {(offset + tokens) / 1e6:14,.0f}   {mlm_loss:.3f}   {nsp_loss:.3f}"
        for run, offset in zip(runs, offsets, strict=True)
        for tokens, mlm_loss, nsp_loss in run["curve"]
    )
    return CARD.read_text(encoding="utf-8").format(
        mlm_128=_format_score(results["words_128"]),
        mlm_512=_format_score(results["words_512"]),
        nsp=_format_score(results["pairs"]),
        nsp_pairs=results["pairs"]["count"],
        fine_tuned=_sst2_row(results["sst2"]) if "sst2" in results else "",
        last_layer=results["features_-1"]["mean"],
        layer=LAYER,
        best_layer=results[f"features_{LAYER}"]["mean scaled"],
        top=TOP,
        correct=sum(blank["rank"] is not None for blank in blanks),
        blanks=len(blanks),
        date=results["date"],
        tokens=sum(run["tokens"] for run in runs) / 1e9,
        runs="\n".join(rows),
        curve="\n".join(curve),
        predictions="\n".join(map(_blank_row, blanks)),
    )


def _sst2_row(scores: dict[str, Any]) -> str:
    title = "SST-2 dev after fine-tuning, mean of 3 seeds"
    return f"| {title} | {scores['mean']:.1%} |\n"


def _blank_row(blank: dict[str, Any]) -> str:
    accepted, top = (", ".join(blank[key]).replace("|", "\\|") for key in ("accepted", "top"))
    return f"| {blank['rank'] or '-'} | {blank['sentence']} | {accepted} | {top} |"


def _format_score(score: dict[str, Any]) -> str:
    return f"{score['accuracy']:.1%}, loss {score['loss']:.3f}"


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
