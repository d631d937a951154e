"""Fine-tuning on real data with the default settings of each task, and the tables in docs/results.md.

    python -m benchmarks.tasks [NAME ...] [--model MODEL] [--data DIR] [--seeds 3] [--device auto]
    python -m benchmarks.tasks --tune NAME --set training.learning_rate=2e-4 ...   on 10% of the training data
    python -m benchmarks.tasks student [--model MODEL]                      3 layers distilled from the SST-2 model
    python -m benchmarks.tasks --table                                      write docs/results.md from stored results

The default settings are chosen by benchmarks/default_recipe.py. --tune never reads the evaluation data; that data is
read once per seed, after the last epoch. Results are stored in benchmarks/results/tasks/NAME-MODEL.json, with settings,
date, commit and machine.
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

from benchmarks.timing import RESULTS, save_results
from regard.data.readers import ExampleSet
from regard.events import drain
from regard.tasks.registry import get_task, read_examples
from regard.training.recipes.finetuning.config import DISTILLATION_DEFAULTS, FineTuningConfig
from regard.training.recipes.finetuning.run import distill, fine_tune, read_splits

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
TABLE = ROOT / "docs" / "results.md"
STUDENT, LAYERS, TARGET = "student", 3, 97  # target: percent of the teacher's accuracy


@dataclass(frozen=True)
class TaskBenchmark:
    """Training and evaluation data, metric and target. Without `dev` the evaluation data is the last 10% of a split."""

    title: str
    task: str
    train: tuple[str, ...]
    dev: str
    metric: str
    target: float | None = None
    note: str = ""


BENCHMARKS = {
    "sst2": TaskBenchmark("SST-2 dev", "classify", ("sst2/train.tsv",), "sst2/dev.tsv", "accuracy", 87),
    "conll": TaskBenchmark("CoNLL-2003 dev", "tag", ("conll2003/eng.train",), "conll2003/eng.testa", "f1", 88),
    "mrpc": TaskBenchmark("MRPC dev", "pair", ("mrpc/train.tsv",), "mrpc/validation.tsv", "f1", 85),
    "stsb": TaskBenchmark("STS-B dev", "regress", ("stsb/sts-train.csv",), "stsb/sts-dev.csv", "spearman", 80),
    "rte": TaskBenchmark("RTE dev", "pair", ("rte/train.tsv", "rte/val.tsv"), "rte/dev.tsv", "accuracy"),
    "cola": TaskBenchmark("CoLA dev", "classify", ("cola/train.tsv", "cola/val.tsv"), "cola/dev.tsv", "mcc"),
    "sms": TaskBenchmark("SMS spam, last 10%", "classify", ("sms-spam/SMSSpamCollection",), "", "f1", 97),
    "toxic": TaskBenchmark("Toxic comments, last 10%", "classify", ("toxic/test.csv",), "", "accuracy", 88),
    "squad": TaskBenchmark(
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
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}, {STUDENT}; default: all")
    parser.add_argument("--model", default="regard-bert", help="model folder or name")
    parser.add_argument("--model-name", help="name of the model in the results; default: the name of its folder")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="folder with the data sets")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--tune", action="store_true", help="evaluate on 10%% of the training data; store nothing")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="override a setting"
    )
    parser.add_argument("--table", action="store_true", help="write docs/results.md")
    options = parser.parse_args(arguments)
    if options.table:
        TABLE.write_text(results_table(), encoding="utf-8")
        print(TABLE)
        return
    model_name = options.model_name or Path(options.model).name
    for name in options.names or [*BENCHMARKS, STUDENT]:
        if name == STUDENT:
            print(distill_student(options, model_name), flush=True)
            continue
        benchmark = BENCHMARKS[name]
        train, dev = read_data(benchmark, options.data, tuning=options.tune)
        overrides = [f"run.num_seeds={options.seeds}", "training.select=last", *options.settings]
        defaults = {"training": get_task(benchmark.task).training_defaults}
        config = FineTuningConfig.load(overrides=["training.baseline=false", *overrides], defaults=defaults)
        with tempfile.TemporaryDirectory() as scratch:
            events = fine_tune(
                benchmark.task, train, dev, model=options.model, output=scratch, config=config, device=options.device
            )
            report = drain(events)
        scores = [seed.scores[benchmark.metric] for seed in report.seeds]
        seconds = statistics.fmean(seed.seconds for seed in report.seeds)
        summary = f"{report.mean[benchmark.metric]:.2f} ± {report.deviation[benchmark.metric]:.2f}"
        print(
            f"{name} {model_name} {' '.join(options.settings)}: {benchmark.metric} {summary} {scores} {seconds:.0f} s",
            flush=True,
        )
        if not options.tune:
            document = report.to_dict()
            del document["output"], document["model"]
            save_results(
                f"tasks/{name}-{model_name}", {"model": model_name, "examples": len(train.examples), **document}
            )


def distill_student(options: argparse.Namespace, model_name: str) -> dict[str, Any]:
    """Train an SST-2 teacher and distill a student with fewer layers, for each seed. `kept`: retained accuracy in %."""
    train, dev = read_data(BENCHMARKS["sst2"], options.data, tuning=options.tune)
    teachers, students = [], []
    for seed in range(options.seeds):
        overrides = [f"run.seed={seed}", "training.select=last"]
        defaults = {"training": get_task("classify").training_defaults}
        config = FineTuningConfig.load(overrides=["training.baseline=false", *overrides], defaults=defaults)
        student_config = FineTuningConfig.load(
            overrides=[*overrides, *options.settings], defaults=DISTILLATION_DEFAULTS
        )
        with tempfile.TemporaryDirectory() as scratch:
            teacher = Path(scratch, "teacher")
            events = fine_tune(
                "classify", train, dev, model=options.model, output=teacher, config=config, device=options.device
            )
            teacher_report = drain(events)
            output, device = Path(scratch, "student"), options.device
            student_report = drain(
                distill(teacher, train, dev, layers=LAYERS, output=output, config=student_config, device=device)
            )
        teachers.append(teacher_report.mean["accuracy"])
        students.append(student_report.mean["accuracy"])
    kept = 100 * statistics.fmean(students) / statistics.fmean(teachers)
    results = {"model": model_name, "layers": LAYERS, "teacher": teachers, "student": students, "kept": kept}
    if not options.tune:
        save_results(f"tasks/{STUDENT}-{model_name}", results)
    return results


def read_data(benchmark: TaskBenchmark, folder: Path, *, tuning: bool) -> tuple[ExampleSet[Any], ExampleSet[Any]]:
    """Read training data and evaluation data; for tuning, the latter is 10% of the training data."""
    files = [read_examples(benchmark.task, str(folder / name), labeled=True) for name in benchmark.train]
    train = ExampleSet(
        [example for file in files for example in file.examples], " + ".join(benchmark.train), files[0].description
    )
    if not benchmark.dev:
        parts = read_splits(benchmark.task, train, None, table=None, split_sizes="80/10/10")
        train, dev, test = (parts[name] for name in ("train", "dev", "test"))
        if tuning:
            return train, dev
        return ExampleSet([*train.examples, *dev.examples], train.path, train.description), test
    if tuning:
        parts = read_splits(benchmark.task, train, None, table=None, split_sizes="90/10")
        return parts["train"], parts["dev"]
    return train, read_examples(benchmark.task, str(folder / benchmark.dev), labeled=True)


def results_table() -> str:
    """The text of docs/results.md."""
    results = {path.stem: json.loads(path.read_text()) for path in sorted((RESULTS / "tasks").glob("*.json"))}
    mnist = json.loads((RESULTS / "mnist.json").read_text())
    models = sorted(
        {document["model"] for document in results.values()}, key=lambda name: (name != "regard-bert", name)
    )
    lines = [
        "# Fine-tuning results",
        "",
        "Mean and standard deviation over seeds, in percent. The settings were tuned for each task on 10% of its",
        "training data, and are in `benchmarks/results/tasks`; the evaluation data was used once per seed. The second",
        "table compares them with the default settings. Generated by `python -m benchmarks.tasks --table`.",
        "",
        f"| data | metric | {' | '.join(models)} | target |",
        f"|---|---|{'---|' * len(models)}---|",
    ]
    for name, benchmark in BENCHMARKS.items():
        cells = []
        for model in models:
            result = results.get(f"{name}-{model}")
            cells.append(
                ""
                if result is None
                else f"{result['mean'][benchmark.metric]:.1f} ± {result['deviation'][benchmark.metric]:.1f}"
            )
        lines.append(f"| {benchmark.title} | {benchmark.metric} | {' | '.join(cells)} | {benchmark.target or ''} |")
    cells = [
        f"{results[f'{STUDENT}-{model}']['kept']:.1f}" if f"{STUDENT}-{model}" in results else "" for model in models
    ]
    lines.append(
        f"| SST-2 dev, {LAYERS} layers distilled | % of the teacher's accuracy | {' | '.join(cells)} | {TARGET} |"
    )
    lines += ["", *default_settings_table()]
    lines += [
        "",
        "| images | metric | ViT from scratch, 6 layers of size 64 | target |",
        "|---|---|---|---|",
        f"| MNIST test, {mnist['minutes']:.0f} minutes on 2 cores | accuracy "
        f"| {mnist['test']['accuracy']:.1f} | 98.5 |",
    ]
    lines += [
        "",
        *(f"{benchmark.title}: {benchmark.note}." for benchmark in BENCHMARKS.values() if benchmark.note),
        "",
        PUBLISHED,
    ]
    return "\n".join(lines)


def default_settings_table() -> list[str]:
    """The default settings against those tuned for each task, from benchmarks/results/default_recipe.json."""
    path = RESULTS / "default_recipe.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    lines = [
        "## Default settings",
        "",
        f"What `regard train` does without any settings, with {found['model']}, against settings tuned for each task.",
        "Tenths: a tenth of the training data is held out, another one for each of three seeds; the defaults were",
        "chosen on these (of toxic comments, CoNLL and SQuAD, 4,000, 4,000 and 6,000 examples were trained on). Dev:",
        "the evaluation data of the first table, where it was measured. Differences are means over the same seeds.",
        "",
        "| data | metric | tenths: tuned | default | difference | dev: tuned | default | difference |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, benchmark in BENCHMARKS.items():
        cells = []
        for part in ("tune", "final"):
            rows = found[part]["tasks"].get(name, {"recipes": {}})["recipes"]
            cells += [
                "" if recipe not in rows else f"{rows[recipe]['mean']:.1f} ± {rows[recipe]['deviation']:.1f}"
                for recipe in ("tuned", "default")
            ]
            cells.append(f"{rows['default']['against_tuned']:+.1f}" if "default" in rows else "")
        title = benchmark.title.split(",")[0].removesuffix(" dev")
        lines.append(f"| {title} | {benchmark.metric} | {' | '.join(cells)} |")
    return lines


PUBLISHED = """\
## Published results shown in the lectures

Results of large models trained on the full data of each task, mostly on test sets that are not public.

| data | metric | |
|---|---|---|
| SQuAD v1.1 test, humans | exact match / F1 | 82.3 / 91.2 |
| SQuAD v1.1 test, single model | exact match / F1 | BERT 85.1 / 91.8; nlnet 83.5 / 90.1 |
| SQuAD v1.1 test, ensemble | exact match / F1 | BERT 87.4 / 93.2; nlnet 86.0 / 91.7 |
| MultiNLI | accuracy | BERT 86.7; OpenAI's GPT 82.2 |
| QNLI | accuracy | BERT 91.1; OpenAI's GPT 88.1 |
| SWAG | accuracy | BERT 86.3; OpenAI's GPT 75.0 |
"""


if __name__ == "__main__":
    main()
