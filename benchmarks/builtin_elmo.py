"""The built-in ELMo: pretrained on a slice of the corpus, evaluated, and written with a model card.

    python -m benchmarks.builtin_elmo [--megabytes 12] [--budget 50min] [--data DIR] [--work DIR] [--resume]
                                      [--set KEY=VALUE ...] [--output DIR] [--device auto] [--save]
    python -m benchmarks.builtin_elmo --from-run DIR      a finished run of `regard pretrain elmo`

The loss is evaluated on text that no run reads, with what is written: the weights in 8 bits. The folder is
src/regard/builtin/regard-elmo; its card is made from benchmarks/builtin_elmo.md and the results, which --save also
writes to benchmarks/results. The result is one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import regard
from benchmarks.timing import describe_machine, save_results
from regard.checkpoints.storage import write_compact
from regard.data.corpus import Corpus, build_corpus
from regard.device import choose_device
from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.evaluate import bidirectional_scores
from regard.training.recipes.pretraining.token_stream import TokenStream
from regard.training.run_folder import CONFIG, EVENTS

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
NAME = "regard-elmo"
FOLDER = ROOT / "src" / "regard" / "builtin" / NAME
SETTINGS = ROOT / "configs" / "elmo-tiny.toml"
CARD = Path(__file__).with_suffix(".md")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=12.0, help="text of part-a.txt.xz to train on")
    parser.add_argument("--budget", default="50min", metavar="TIME", help="length of the run")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="folder with corpus/")
    parser.add_argument("--work", type=Path, metavar="DIR", help="folder of the run; --resume continues it")
    parser.add_argument("--resume", action="store_true", help="continue the run in --work")
    parser.add_argument("--from-run", type=Path, metavar="DIR", help="do not train: a finished run")
    parser.add_argument("--started-from", type=Path, metavar="DIR", help="the run that --from-run was started from")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="override settings")
    parser.add_argument("--output", type=Path, default=FOLDER, metavar="DIR", help="default: the folder in the package")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--save", action="store_true", help=f"write benchmarks/results/{NAME}.json")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        run = options.from_run or train(options, Path(scratch), options.work or Path(scratch) / "run")
        results = evaluate_and_write(options, run, Path(scratch))
    if options.save:
        print(save_results(NAME, results), file=sys.stderr)
    print(json.dumps(results))


def train(options: argparse.Namespace, scratch: Path, run: Path) -> Path:
    text = scratch / "text.txt"
    with lzma.open(options.data / "corpus" / "part-a.txt.xz") as file:
        part = file.read(int(options.megabytes * 1e6))
    text.write_bytes(part[: part.rfind(b"\n\n") + 1])  # whole documents
    regard.pretrain(
        "elmo",
        corpus=[str(text)],
        heldout=[str(options.data / "corpus" / "heldout.txt.xz")],
        config=str(SETTINGS),
        settings=options.set,
        budget=options.budget,
        output=str(run),
        resume=options.resume,
        device=options.device,
    )
    return run


def evaluate_and_write(options: argparse.Namespace, run: Path, scratch: Path) -> dict[str, Any]:
    """Store the weights of a finished run in 8 bits, evaluate those, and write."""
    ends = [finished(folder) for folder in (options.started_from, run) if folder]
    end = ends[-1]
    config = PretrainingConfig.read(run / CONFIG, family="elmo")
    write_compact(run, scratch / "stored", storage="int8")
    model, tokenizer = regard.load(scratch / "stored")
    assert tokenizer is not None
    model.to(choose_device(options.device))
    build_corpus(options.data / "corpus" / "heldout.txt.xz", scratch / "held-out", tokenizer=tokenizer)
    text = TokenStream.concatenate(Corpus.open(scratch / "held-out"))
    forwards, backwards = bidirectional_scores(model, text, tokenizer, length=config.data.max_length)
    results: dict[str, Any] = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocab_size": tokenizer.size,
        "hidden_size": config.model.hidden_size,
        "num_hidden_layers": config.model.num_hidden_layers,
        "steps": sum(one["steps"] for one in ends),
        "tokens": sum(one["tokens"] for one in ends),
        "minutes": round(sum(one["seconds"] for one in ends) / 60, 1),
        "held_out": {"forwards": forwards, "backwards": backwards},
        "held_out_float32": end["scores"],
        "machine": describe_machine(),
    }
    card = CARD.read_text(encoding="utf-8").format(**results, name=NAME, millions=results["parameters"] / 1e6)
    size = write_compact(run, options.output, storage="int8", files={"README.md": card.encode()})
    return {**results, "bytes": size}


def finished(run: Path) -> dict[str, Any]:
    """The event with which a run ended."""
    for line in (run / EVENTS).read_text().splitlines():
        event: dict[str, Any] = json.loads(line)
        if event["type"] == "finished":
            return event
    raise SystemExit(f"{run}: not finished; continue it with `regard pretrain --resume`")


if __name__ == "__main__":
    main()
