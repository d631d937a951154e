"""Fine-tuning on real data: each task with its file in configs/tasks, and the table in docs/results.md.

    python -m benchmarks.tasks [NAME ...] [--model MODEL] [--data DIR] [--seeds 3] [--device auto]
    python -m benchmarks.tasks --choose NAME --set training.learning_rate=2e-4 ...   on 10% of the training data
    python -m benchmarks.tasks student [--model MODEL]                      3 layers distilled from the SST-2 model
    python -m benchmarks.tasks --table                                      write docs/results.md from stored results

Settings are selected with --choose, which never reads the evaluation data; that data is read once per seed, after the
last epoch. Results are stored in benchmarks/results/tasks/NAME-MODEL.json, with date, commit and machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.race import RESULTS, keep
from regard.data.readers import ExampleSet
from regard.events import drain
from regard.tasks.registry import get_task, read_examples
from regard.training.finetuning.config import DISTILLATION_DEFAULTS, FineTuningConfig
from regard.training.finetuning.run import distill, fine_tune, read_splits

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
TABLE = ROOT / "docs" / "results.md"
STUDENT, LAYERS, KEEPS = "student", 3, 97


@dataclass(frozen=True)
class Figure:
    """Training and evaluation data, metric and target. Without `dev`: the last 10% of a split."""

    title: str
    task: str
    train: tuple[str, ...]
    dev: str
    score: str
    wanted: float | None = None
    note: str = ""


FIGURES = {
    "sst2": Figure("SST-2 dev", "classify", ("sst2/train.tsv",), "sst2/dev.tsv", "accuracy", 87),
    "conll": Figure("CoNLL-2003 dev", "tag", ("conll2003/eng.train",), "conll2003/eng.testa", "f1", 88),
    "mrpc": Figure("MRPC dev", "pair", ("mrpc/train.tsv",), "mrpc/validation.tsv", "f1", 85),
    "stsb": Figure("STS-B dev", "regress", ("stsb/sts-train.csv",), "stsb/sts-dev.csv", "spearman", 80),
    "rte": Figure("RTE dev", "pair", ("rte/train.tsv", "rte/val.tsv"), "rte/dev.tsv", "accuracy"),
    "cola": Figure("CoLA dev", "classify", ("cola/train.tsv", "cola/val.tsv"), "cola/dev.tsv", "mcc"),
    "sms": Figure("SMS spam, last tenth", "classify", ("sms-spam/SMSSpamCollection",), "", "f1", 97),
    "toxic": Figure("Toxic comments, last tenth", "classify", ("toxic/test.csv",), "", "accuracy", 88),
    "squad": Figure(
        "SQuAD v1.1 dev",
        "answer",
        ("squad/new_wiki_v1.0.json.gz", "squad/nyt_v1.0.json.gz", "squad/amazon_reviews_v1.0.json.gz"),
        "squad/squaddev_v1.1.json.gz",
        "f1",
        55,
        "trained on three other files in its format, not on SQuAD's own training set",
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}, {STUDENT}; default: all")
    parser.add_argument("--model", default="regard-bert")
    parser.add_argument("--called", help="the model's name in the results; default: that of its folder")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--choose", action="store_true", help="evaluate on 10%% of the training data; store nothing")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    parser.add_argument("--table", action="store_true", help="write docs/results.md")
    options = parser.parse_args(arguments)
    if options.table:
        TABLE.write_text(table(), encoding="utf-8")
        print(TABLE)
        return
    called = options.called or Path(options.model).name
    for name in options.names or [*FIGURES, STUDENT]:
        if name == STUDENT:
            print(student(options, called), flush=True)
            continue
        figure = FIGURES[name]
        train, dev = data(figure, options.data, tenth=options.choose)
        chosen = [f"run.num_seeds={options.seeds}", "training.select=last", *options.settings]
        defaults = {"training": get_task(figure.task).training_defaults}
        config = FineTuningConfig.load(recipe(name, called), overrides=chosen, defaults=defaults)
        with tempfile.TemporaryDirectory() as scratch:
            events = fine_tune(
                figure.task, train, dev, model=options.model, output=scratch, config=config, device=options.device
            )
            report = drain(events)
        scores = [one.scores[figure.score] for one in report.seeds]
        seconds = statistics.fmean(one.seconds for one in report.seeds)
        told = f"{report.mean[figure.score]:.2f} ± {report.deviation[figure.score]:.2f}"
        print(
            f"{name} {called} {' '.join(options.settings)}: {figure.score} {told} {scores} {seconds:.0f} s", flush=True
        )
        if not options.choose:
            document = report.to_dict()
            del document["output"], document["model"]
            keep(f"tasks/{name}-{called}", {"model": called, "examples": len(train.examples), **document})


def student(options: argparse.Namespace, called: str) -> dict[str, Any]:
    """An SST-2 model, and the share of its accuracy that a student with fewer layers retains, for each seed."""
    train, dev = data(FIGURES["sst2"], options.data, tenth=options.choose)
    teachers, students = [], []
    for seed in range(options.seeds):
        chosen = [f"run.seed={seed}", "training.select=last"]
        config = FineTuningConfig.load(recipe("sst2", called), overrides=chosen)
        lessons = FineTuningConfig.load(
            recipe(STUDENT, called), overrides=[*chosen, *options.settings], defaults=DISTILLATION_DEFAULTS
        )
        with tempfile.TemporaryDirectory() as scratch:
            teacher = Path(scratch, "teacher")
            events = fine_tune(
                "classify", train, dev, model=options.model, output=teacher, config=config, device=options.device
            )
            begun = drain(events)
            output, device = Path(scratch, "student"), options.device
            learned = drain(distill(teacher, train, dev, layers=LAYERS, output=output, config=lessons, device=device))
        teachers.append(begun.mean["accuracy"])
        students.append(learned.mean["accuracy"])
    kept = 100 * statistics.fmean(students) / statistics.fmean(teachers)
    found = {"model": called, "layers": LAYERS, "teacher": teachers, "student": students, "kept": kept}
    if not options.choose:
        keep(f"tasks/{STUDENT}-{called}", found)
    return found


def recipe(name: str, called: str) -> Path:
    """The configuration file of a task: the model-specific one if it exists, else the general one."""
    own = ROOT / f"configs/tasks/{name}-{called}.toml"
    return own if own.exists() else ROOT / f"configs/tasks/{name}.toml"


def data(figure: Figure, folder: Path, *, tenth: bool) -> tuple[ExampleSet[Any], ExampleSet[Any]]:
    """Training data and evaluation data."""
    files = [read_examples(figure.task, str(folder / name), labeled=True) for name in figure.train]
    train = ExampleSet(
        [example for read in files for example in read.examples], " + ".join(figure.train), files[0].description
    )
    if not figure.dev:
        parts = read_splits(figure.task, train, None, table=None, split_sizes="80/10/10")
        train, dev, test = (parts[name] for name in ("train", "dev", "test"))
        if tenth:
            return train, dev
        return ExampleSet([*train.examples, *dev.examples], train.path, train.description), test
    if tenth:
        parts = read_splits(figure.task, train, None, table=None, split_sizes="90/10")
        return parts["train"], parts["dev"]
    return train, read_examples(figure.task, str(folder / figure.dev), labeled=True)


def table() -> str:
    """docs/results.md."""
    kept = {path.stem: json.loads(path.read_text()) for path in sorted((RESULTS / "tasks").glob("*.json"))}
    pictures = json.loads((RESULTS / "mnist.json").read_text())
    models = sorted({document["model"] for document in kept.values()}, key=lambda name: (name != "regard-bert", name))
    lines = [
        "# What fine-tuning reaches",
        "",
        "Mean and deviation over seeds, in percent, each from its file in `configs/tasks`. Settings were chosen on a",
        "tenth of the training data; what is reported on was read once a seed. Written by",
        "`python -m benchmarks.tasks --table`.",
        "",
        f"| data | score | {' | '.join(models)} | wanted |",
        f"|---|---|{'---|' * len(models)}---|",
    ]
    for name, figure in FIGURES.items():
        cells = []
        for model in models:
            found = kept.get(f"{name}-{model}")
            cells.append(
                "" if found is None else f"{found['mean'][figure.score]:.1f} ± {found['deviation'][figure.score]:.1f}"
            )
        lines.append(f"| {figure.title} | {figure.score} | {' | '.join(cells)} | {figure.wanted or ''} |")
    cells = [f"{kept[f'{STUDENT}-{model}']['kept']:.1f}" if f"{STUDENT}-{model}" in kept else "" for model in models]
    lines.append(f"| SST-2 dev, {LAYERS} layers distilled | % of the teacher's | {' | '.join(cells)} | {KEEPS} |")
    lines += [
        "",
        "| pictures | score | a new ViT, 6 layers of 64 | wanted |",
        "|---|---|---|---|",
        f"| MNIST test, {pictures['minutes']:.0f} minutes on 2 cores | accuracy "
        f"| {pictures['test']['accuracy']:.1f} | 98.5 |",
    ]
    lines += ["", *(f"{figure.title}: {figure.note}." for figure in FIGURES.values() if figure.note), "", PUBLISHED]
    return "\n".join(lines)


PUBLISHED = """\
## Published results shown in the lectures

Of large models, trained on all of each task's data; most on test sets that are not public.

| data | score | |
|---|---|---|
| SQuAD v1.1 test, people | exact match / F1 | 82.3 / 91.2 |
| SQuAD v1.1 test, one model | exact match / F1 | BERT 85.1 / 91.8; nlnet 83.5 / 90.1 |
| SQuAD v1.1 test, several models | exact match / F1 | BERT 87.4 / 93.2; nlnet 86.0 / 91.7 |
| MultiNLI | accuracy | BERT 86.7; OpenAI's GPT 82.2 |
| QNLI | accuracy | BERT 91.1; OpenAI's GPT 88.1 |
| SWAG | accuracy | BERT 86.3; OpenAI's GPT 75.0 |
"""


if __name__ == "__main__":
    main()
