"""The built-in fine-tuned models: spam, toxic comments and digits; trained, evaluated once, and written with a card.

    python -m benchmarks.builtin_tasks spam|toxic|digits [--data DIR] [--work DIR] [--resume] [--set KEY=VALUE ...]
                                       [--output DIR] [--device auto] [--save]
    python -m benchmarks.builtin_tasks spam --files DIR      only write train.tsv, dev.tsv and test.tsv
    python -m benchmarks.builtin_tasks spam --from-run DIR   a finished run of `regard train classify` on these files

The text models start from the first 4 of regard-bert's 8 layers. Of the texts, without duplicates, a tenth is held out
for one final evaluation and a tenth for choosing the epoch; of MNIST, the test images are evaluated once. What is
evaluated is what is written: the weights in 8 bits. The folder is src/regard/builtin/regard-NAME; its card is made from
benchmarks/builtin_tasks.md and the results, which --save also writes to benchmarks/results. The result is one line of
JSON.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import random
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import describe_machine, save_results
from regard.checkpoints.loading import load, save
from regard.checkpoints.storage import write_compact
from regard.data.readers import ExampleSet, TableOptions
from regard.device import choose_device
from regard.events import drain
from regard.files.durable_folder import FolderRecord
from regard.files.json_files import read_json
from regard.known import DEFAULT_MODEL
from regard.models.family import build
from regard.tasks.fine_tuned_model import load_fine_tuned, score
from regard.tasks.registry import get_task, read_examples
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.report import FineTuningReport
from regard.training.recipes.finetuning.run import digest, fine_tune
from regard.training.run_folder import REPORT

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
BUILT_IN = ROOT / "src" / "regard" / "builtin"
CARD = Path(__file__).with_suffix(".md")
LAYERS = 4  # of regard-bert
PARTS = ("train", "dev", "test")
Row = tuple[str, str]  # text and label


@dataclass(frozen=True)
class BuiltInTask:
    """A fine-tuned model: how to read its texts (None: images), its settings, and the sentences of its card."""

    rows: Callable[[Path], Iterator[Row]] | None
    settings: tuple[str, ...]
    summary: str
    data: str
    limitations: str
    example: str


def sms_rows(data: Path) -> Iterator[Row]:
    with (data / "sms-spam" / "SMSSpamCollection").open(encoding="utf-8") as file:
        for line in file:
            label, text = line.rstrip("\n").split("\t", 1)
            yield text, label


def comment_rows(data: Path) -> Iterator[Row]:
    with (data / "toxic" / "test.csv").open(encoding="utf-8", newline="") as file:
        for text, label in csv.reader(file):
            yield text, "toxic" if label == "1" else "not toxic"


FAST = (
    "training.optimizer=adamw",
    "training.adversarial_epsilon=0",
    "training.learning_rate=2e-4",
    "training.dropout=0.1",
    "training.max_length=64",
)
TASKS = {
    "spam": BuiltInTask(
        sms_rows,
        (*FAST, "training.num_epochs=4"),
        "Tells spam from ham, wanted messages, in English text messages (SMS)",
        "The SMS Spam Collection v.1 by Tiago A. Almeida and José María Gómez Hidalgo, from the UCI Machine Learning "
        "Repository (https://archive.ics.uci.edu/dataset/228/sms+spam+collection): CC BY 4.0, "
        "https://creativecommons.org/licenses/by/4.0/. Messages that occur more than once were used once.",
        "The messages are from the United Kingdom and Singapore, of about 2005 to 2011: fraud of another kind, in "
        "another language, or in e-mail may pass as ham.",
        'regard predict regard-spam "You have won a prize! Call 09061701461 to claim it now."',
    ),
    "toxic": BuiltInTask(
        comment_rows,
        (*FAST, "training.num_epochs=1"),
        "Tells toxic comments (insults, threats, obscenity) from others, in English discussions on Wikipedia",
        "Comments of Wikipedia's talk pages with labels by Jigsaw, in a balanced selection by the authors of RobTest "
        "(https://github.com/Hongcheng-Gao/RobTest-Demo). The labels are in the public domain (CC0); the text is by "
        "the users of Wikipedia, CC BY-SA 3.0, https://creativecommons.org/licenses/by-sa/3.0/. Comments that occur "
        "more than once were used once.",
        "Words count more than what is meant: comments that quote an insult or mention an identity may be called "
        "toxic, and polite contempt may not. Only the first 64 tokens are read. Do not use it to make decisions about "
        "people.",
        'regard predict regard-toxic "Thank you for your help with the article."',
    ),
    "digits": BuiltInTask(
        None,
        ("training.num_epochs=3", "training.select=last"),
        "Reads a handwritten digit, 0 to 9, in an image of 28 x 28 pixels",
        "MNIST by Yann LeCun, Corinna Cortes and Christopher J. C. Burges, http://yann.lecun.com/exdb/mnist/, made "
        "from data of NIST: CC BY-SA 3.0, https://creativecommons.org/licenses/by-sa/3.0/.",
        "Light digits on a dark ground, centered, one in an image. Any other image gets a digit as well, often with a "
        "high probability.",
        "regard predict regard-digits digit.png",
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(TASKS))
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR")
    parser.add_argument("--files", type=Path, metavar="DIR", help="only write the training, dev and test files")
    parser.add_argument("--work", type=Path, metavar="DIR", help="folder of the run; --resume continues it")
    parser.add_argument("--resume", action="store_true", help="continue the run in --work")
    parser.add_argument("--from-run", type=Path, metavar="DIR", help="do not train: a finished run")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="override settings")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: the folder in the package")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/regard-NAME.json")
    options = parser.parse_args(arguments)
    if options.files:
        print(*write_files(options, options.files).values(), sep="\n")
        return
    output = options.output or BUILT_IN / f"regard-{options.name}"
    with tempfile.TemporaryDirectory() as scratch:
        results = evaluate_and_write(options, Path(scratch), output)
    if options.save:
        print(save_results(f"regard-{options.name}", results), file=sys.stderr)
    print(json.dumps(results))


def evaluate_and_write(options: argparse.Namespace, scratch: Path, output: Path) -> dict[str, Any]:
    """Train, or take a finished run; store the weights in 8 bits, evaluate those once, and write."""
    parts = read_parts(options, scratch)
    if options.from_run:
        run = options.from_run
        report = FineTuningReport(output=str(run), **read_json(run / REPORT))
        digests = {name: digest(parts[name]) for name in ("train", "dev")}
        record = FolderRecord.read(run)
        if record is None or record.identity["data"] != digests:
            raise SystemExit(f"{run} was trained on other data than those of --files")
    else:
        run = options.work or scratch / "run"
        report = train(options, parts, scratch, run)
    write_compact(run, scratch / "stored", storage="int8")
    device = choose_device(options.device)
    original, stored = (load_fine_tuned(folder, device=device) for folder in (run, scratch / "stored"))
    parameters = sum(parameter.numel() for parameter in stored.model.parameters())
    results: dict[str, Any] = {
        "model": report.model,
        "parameters": parameters,
        "labels": list(stored.labels),
        "examples": {name: len(part.examples) for name, part in parts.items()},
        "dev": report.best.scores,
        "test": score(stored, parts["test"].examples, device=device),
        "test_float32": score(original, parts["test"].examples, device=device),
        "settings": report.settings,
        "epoch": report.best.epoch,
        "minutes": round(report.best.seconds / 60, 1),
        "machine": describe_machine(),
    }
    card = model_card(options.name, results, stored.model.encoder.config)
    size = write_compact(run, output, storage="int8", files={"README.md": card.encode()})
    return {**results, "bytes": size}


def train(options: argparse.Namespace, parts: dict[str, ExampleSet[Any]], scratch: Path, run: Path) -> FineTuningReport:
    images = TASKS[options.name].rows is None
    model = None  # images: a new Vision Transformer
    if not images:
        truncate(scratch / "bert")
        model = str(scratch / "bert")
    config = FineTuningConfig.load(
        overrides=["training.baseline=false", *TASKS[options.name].settings, *options.set],
        defaults={"training": get_task("classify", images=images).training_defaults},
    )
    events = fine_tune(
        "classify", parts["train"], parts["dev"], model=model, output=run, config=config, resume=options.resume,
        device=options.device,
    )  # fmt: skip
    return drain(events, lambda event: print(event.line() or "", file=sys.stderr) if not event.transient else None)


def truncate(folder: Path, *, layers: int = LAYERS) -> None:
    """Write the first layers of regard-bert, with its pooler and without its heads for pretraining."""
    model, tokenizer = load(DEFAULT_MODEL)
    encoder: Any = model
    with torch.random.fork_rng():
        first = build(dataclasses.replace(encoder.config, num_hidden_layers=layers), output_heads=["pooler"])
    weights = model.state_dict()
    first.load_state_dict({name: weights[name] for name in first.state_dict()})
    save(first, folder, tokenizer)


def read_parts(options: argparse.Namespace, scratch: Path) -> dict[str, ExampleSet[Any]]:
    """The labeled examples for training, for evaluation after each epoch, and for the final evaluation."""
    if TASKS[options.name].rows is None:
        images = options.data / "mnist"
        files = {"train": images / "train-images-idx3-ubyte.gz", "dev": images / "t10k-images-idx3-ubyte.gz"}
        read = {name: read_examples("classify", str(file), labeled=True) for name, file in files.items()}
        return {**read, "test": read["dev"]}
    table = TableOptions(quoting=False)
    files = write_files(options, scratch)
    return {name: read_examples("classify", str(file), table=table, labeled=True) for name, file in files.items()}


def write_files(options: argparse.Namespace, folder: Path) -> dict[str, Path]:
    """Write tables of text and label, without duplicates: a tenth for test, a tenth for dev, the rest for training."""
    rows = TASKS[options.name].rows
    if rows is None:
        raise SystemExit("MNIST has files for training and test already; give them to `regard train classify`")
    unique: dict[str, Row] = {}
    for text, label in rows(options.data):
        line = " ".join(text.split())
        if line:
            unique.setdefault(line.lower(), (line, label))
    examples = list(unique.values())
    random.Random(0).shuffle(examples)
    tenth = len(examples) // 10
    parts = {"test": examples[:tenth], "dev": examples[tenth : 2 * tenth], "train": examples[2 * tenth :]}
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{options.name}-{name}.tsv" for name in PARTS}
    for name, path in files.items():
        lines = ["text\tlabel", *(f"{text}\t{label}" for text, label in parts[name])]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files


def model_card(name: str, results: dict[str, Any], config: Any) -> str:
    task, examples, scores = TASKS[name], results["examples"], results["test"]
    images = task.rows is None
    training = results["settings"]["training"]
    architecture = f"{config.num_hidden_layers} layers, hidden size {config.hidden_size}"
    if images:
        start = f"a Vision Transformer with {architecture} and patches of {config.patch_size[0]} pixels"
        held_out = f"The {examples['test']:,} test images were evaluated once, after the last epoch."
    else:
        start = f"a BERT with {architecture}: the first of regard-bert's 8 layers, fine-tuned"
        held_out = f"{examples['test']:,} held-out texts were evaluated once, after training. "
        held_out += f"The epoch was chosen on {examples['dev']:,} others."
    rows = [f"| {metric} | {value:.2f} | {results['test_float32'][metric]:.2f} |" for metric, value in scores.items()]
    return CARD.read_text(encoding="utf-8").format(
        name=f"regard-{name}",
        summary=wrap(
            f"{task.summary}: {start}, {results['parameters'] / 1e6:.1f} million parameters, stored in 8 bits. Trained "
            f"with Regard. Labels: {', '.join(results['labels'])}."
        ),
        example=task.example,
        scores="\n".join(rows),
        held_out=wrap(held_out),
        data=wrap(f"{task.data} {examples['train']:,} examples were trained on."),
        epochs=training["num_epochs"],
        epoch=results["epoch"],
        minutes=results["minutes"],
        machine=results["machine"],
        key=name,
        limitations=wrap(task.limitations),
    )


def wrap(text: str) -> str:
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    main()
