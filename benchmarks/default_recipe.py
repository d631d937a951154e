"""The default settings of `regard train`: recipes compared on tenths of the training data of nine tasks.

    python -m benchmarks.default_recipe pack --output DIR                 compressed copies of the data
    python -m benchmarks.default_recipe tune --output DIR                 every recipe x task x held-out tenth
    python -m benchmarks.default_recipe final --recipe NAME --output DIR  one recipe and the tuned settings, on dev
    python -m benchmarks.default_recipe small --recipe NAME --output DIR  more epochs for a few hundred examples
    python -m benchmarks.default_recipe table FILE [--save]               means, and the regret of each recipe

`tune` never reads evaluation data. It holds out a tenth of the training data (of SQuAD's, a tenth of the documents),
another one for each seed, trains on the rest and scores on the tenth. Many runs share one GPU. A finished run is a
line of DIR/recipe.jsonl at once, and every recipe and task has its first seed before the second begins, so that
nothing is lost when the time is over.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import lzma
import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from queue import Empty
from typing import Any

from benchmarks.tasks import BENCHMARKS, DATA, read_data
from benchmarks.timing import describe_machine, save_results
from regard.checkpoints import loading
from regard.data.examples import split_examples
from regard.device import choose_device
from regard.events import drain
from regard.tasks.fine_tuned_model import calibrate
from regard.tasks.registry import get_task
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.model_factory import ModelFactory
from regard.training.recipes.finetuning.recipe import FineTuningRecipe
from regard.training.trainer import Trainer

MODEL = "regard-bert"
NAMES = ("rte", "mrpc", "cola", "sst2", "sms", "stsb", "toxic", "squad", "conll")  # the noisiest first
TUNING_EXAMPLES = {"toxic": 4000, "squad": 6000, "conll": 4000}  # at most, in `tune`


def _recipe(optimizer: str, learning_rate: float, adversarial_epsilon: float, **settings: object) -> dict[str, object]:
    return {
        "optimizer": optimizer,
        "learning_rate": learning_rate,
        "adversarial_epsilon": adversarial_epsilon,
        "num_epochs": 3,
        **settings,
    }


RECIPES = {  # default settings; those of a task, such as its number of epochs, take precedence
    "adamw-1e-4": _recipe("adamw", 1e-4, 0.0),
    "adamw-2e-4": _recipe("adamw", 2e-4, 0.0),
    "adamw-2e-4-adversarial-0.5": _recipe("adamw", 2e-4, 0.5),
    "adamw-2e-4-adversarial-0.2": _recipe("adamw", 2e-4, 0.2),
    "adamw-2e-4-adversarial-0.2-5-epochs": _recipe("adamw", 2e-4, 0.2, num_epochs=5),
    "adamw-3e-4-adversarial-0.2": _recipe("adamw", 3e-4, 0.2),
    "muon-3e-4": _recipe("muon", 3e-4, 0.0),
    "muon-3e-4-adversarial-0.2": _recipe("muon", 3e-4, 0.2),
}
TUNED = {  # the best settings of each task, chosen one task at a time
    "rte": _recipe("adamw", 1e-4, 0.5),
    "mrpc": _recipe("adamw", 1e-4, 0.5),
    "cola": _recipe("adamw", 1e-4, 0.0),
    "sst2": _recipe("muon", 3e-4, 0.5),
    "sms": _recipe("adamw", 1e-4, 0.5),
    "stsb": _recipe("adamw", 2e-4, 0.5),
    "toxic": _recipe("adamw", 1e-4, 0.5),
    "squad": _recipe("adamw", 2e-4, 0.0),
    "conll": _recipe("muon", 3e-4, 0.0),
}
SMALL_NAMES, SMALL_SIZES, SMALL_STEPS = ("mrpc", "sst2", "stsb", "conll"), (100, 500), (0, 50, 100, 200, 400)


def settings_for(name: str, recipe: str) -> dict[str, object]:
    """The training settings of a recipe for a task.

    "default" is what `regard train` does, and "tuned" the best settings for each task.
    """
    own = get_task(BENCHMARKS[name].task).training_defaults
    if recipe != "default":
        settings = TUNED[name] if recipe == "tuned" else RECIPES[recipe]
        return {**settings, "num_epochs": own.get("num_epochs", settings["num_epochs"])}
    training = FineTuningConfig.load(defaults={"training": own}).training
    # The models that are compared have a hidden size of 384, for which the base learning rate holds.
    return _recipe(
        training.optimizer,
        training.base_learning_rate,
        training.adversarial_epsilon,
        num_epochs=training.num_epochs,
    )


@dataclass(frozen=True)
class Job:
    part: str  # tune, final or small
    name: str
    settings: tuple[tuple[str, object], ...]
    seed: int
    size: int = 0  # training examples; 0: all


def jobs(part: str, names: Sequence[str], recipes: Sequence[str], seeds: int) -> list[Job]:
    """The runs in the order in which they start; recipes with the same settings for a task share one run."""
    if part == "small":
        return list(dict.fromkeys(_small_jobs(names, recipes, seeds)))
    if part == "tune":
        order = [(recipe, name, seed) for seed in range(seeds) for name in names for recipe in recipes]
    else:
        order = [(recipe, name, seed) for recipe in recipes for name in names for seed in range(seeds)]
    unique = {Job(part, name, tuple(settings_for(name, recipe).items()), seed): None for recipe, name, seed in order}
    return list(unique)


def _small_jobs(names: Sequence[str], recipes: Sequence[str], seeds: int) -> Iterator[Job]:
    """Runs on a few examples, with as many epochs as make a minimum number of steps."""
    for seed, name, size, recipe in itertools.product(range(seeds), names, SMALL_SIZES, recipes):
        settings = settings_for(name, recipe)
        for steps in SMALL_STEPS:
            epochs = max(int(str(settings["num_epochs"])), -(-steps // -(-size // 32)))
            yield Job("small", name, tuple({**settings, "num_epochs": epochs}.items()), seed, size)


@cache
def examples(part: str, name: str, seed: int, folder: Path, limit: int) -> tuple[list[Any], list[Any]]:
    """Training and evaluation examples of a run."""
    train, dev = read_data(BENCHMARKS[name], folder, tuning=False)
    if part == "final":
        return train.examples[: limit or None], dev.examples[: limit or None]
    groups = _documents(name, folder)
    if groups:
        chosen = sorted(set(groups.values()))
        random.Random(seed).shuffle(chosen)
        held_out = set(chosen[: len(chosen) // 10])
        parts = [[e for e in train.examples if (groups[e.context] in held_out) == held] for held in (False, True)]
    else:
        parts = [
            [train.examples[index] for index in indices]
            for indices in split_examples(train.examples, "90/10", seed=seed)
        ]
    size = limit or TUNING_EXAMPLES.get(name, len(parts[0]))
    random.Random(seed).shuffle(parts[0])
    return parts[0][:size], parts[1][: limit or None]


def _documents(name: str, folder: Path) -> dict[str, str]:
    """The document of each context of a task that answers questions; empty for other tasks."""
    if BENCHMARKS[name].task != "answer":
        return {}
    documents = {}
    for number, file in enumerate(BENCHMARKS[name].train):
        with gzip.open(folder / file) as stream:
            for index, document in enumerate(json.load(stream)["data"]):
                documents |= {paragraph["context"]: f"{number}-{index:05}" for paragraph in document["paragraphs"]}
    return documents


def run(job: Job, folder: Path, limit: int, device: str) -> dict[str, Any]:
    """Train, and score the last epoch."""
    benchmark, place = BENCHMARKS[job.name], choose_device(device)
    train, dev = examples(job.part, job.name, job.seed, folder, limit)
    train = train[: job.size or None]
    overrides = [f"training.{key}={value}" for key, value in job.settings] + ["training.select=last"]
    config = FineTuningConfig.load(overrides=overrides)
    factory = ModelFactory(get_task(benchmark.task).from_examples(train), *_load(), length=0)
    model = factory.new_model(job.seed)
    items = factory.task.preprocess(train, factory.rows)
    begin = time.perf_counter()
    recipe = FineTuningRecipe(factory.task, items, config, new_model=lambda seed: model)
    result = drain(Trainer(recipe, seed=job.seed, device=place).train())
    seconds = time.perf_counter() - begin
    _, scores = calibrate(factory.fine_tuned_model(model.eval()), dev, device=place)
    sizes = {"train": len(train), "dev": len(dev)}
    return {"metric": benchmark.metric, "score": scores[benchmark.metric], "seconds": round(seconds, 1)} | {
        "steps": result.steps,
        "examples": sizes,
        "scores": scores,
    }


@cache
def _load() -> Any:
    return loading.load(MODEL)


def work(todo: Any, done: Any, folder: Path, limit: int, device: str) -> None:
    """Run jobs until there are none; a failed job is reported, and the next one begins."""
    while (job := todo.get()) is not None:
        record = asdict(job) | {"settings": dict(job.settings)}
        try:
            done.put(record | run(job, folder, limit, device))
        except Exception as error:
            done.put(record | {"error": f"{type(error).__name__}: {error}"})


def run_all(queue: Sequence[Job], options: argparse.Namespace) -> None:
    """Run the jobs in `options.workers` processes; results are appended to recipe.jsonl as they arrive."""
    begin, machine = time.monotonic(), describe_machine()
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    context = multiprocessing.get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    for job in (*queue, *[None] * options.workers):
        todo.put(job)
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, open(options.output / "recipe.jsonl", "a") as file:
        folder = unpack(options.data, Path(scratch))
        arguments = (todo, done, folder, options.limit, options.device)
        workers = [context.Process(target=work, args=arguments, daemon=True) for _ in range(options.workers)]
        for worker in workers:
            worker.start()
        for number, record in enumerate(_arriving(done, workers, len(queue), begin + options.budget), start=1):
            file.write(json.dumps(record | {"machine": machine}) + "\n")
            file.flush()
            elapsed = time.monotonic() - begin
            summary = record.get("error") or f"{record['score']:.2f} in {record['seconds']:.0f} s"
            settings = " ".join(map(str, record["settings"].values()))
            print(
                f"{elapsed:4.0f} s {number}/{len(queue)} {record['name']} {settings} {record['seed']}: {summary}",
                flush=True,
            )
        for worker in workers:
            worker.terminate()


def _arriving(done: Any, workers: Sequence[Any], total: int, deadline: float) -> Iterator[dict[str, Any]]:
    """Results until all are there, the time is over, or no worker lives."""
    for _ in range(total):
        while True:
            if time.monotonic() > deadline:
                print("the budget is used up", flush=True)
                return
            alive = any(worker.is_alive() for worker in workers)
            try:
                record = done.get(timeout=1)
                break
            except Empty:
                if not alive:
                    return
        yield record


def pack(folder: Path) -> None:
    """Write compressed copies of the files that the tasks read."""
    for benchmark in BENCHMARKS.values():
        for name in filter(None, (*benchmark.train, benchmark.dev)):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if name.endswith(".gz"):
                shutil.copyfile(DATA / name, folder / name)
            else:
                (folder / f"{name}.xz").write_bytes(lzma.compress((DATA / name).read_bytes()))
    print(f"{folder}: {sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()):,} bytes")


def unpack(folder: Path, output: Path) -> Path:
    """The folder with the data: itself, or `output` if it holds compressed copies."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    if not any(path.suffix == ".xz" for path in files):
        return folder
    for path in files:
        target = output / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".xz":
            target.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
        else:
            shutil.copyfile(path, target)
    return output


def read_records(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The finished runs of files of results."""
    records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [record for record in records if "score" in record]


def _identity(record: dict[str, Any]) -> tuple[object, ...]:
    return record["part"], record["name"], json.dumps(record["settings"]), record["seed"], record.get("size", 0)


def summarize(records: Sequence[dict[str, Any]], part: str) -> dict[str, Any]:
    """Scores by task and recipe, and each recipe's regret: how far below the tuned settings it is on the same seeds."""
    scores: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in records:
        if record["part"] == part:
            key = record["name"], json.dumps(record["settings"])
            scores[key][record["seed"]] = record["score"]
            seconds[key].append(record["seconds"])
    tasks: dict[str, Any] = {}
    for name in NAMES:
        tuned = scores[name, json.dumps(settings_for(name, "tuned"))]
        rows = {}
        for recipe in ("tuned", "default", *RECIPES):
            key = name, json.dumps(settings_for(name, recipe))
            if not (found := scores[key]):
                continue
            both = sorted(found.keys() & tuned.keys())
            differences = [found[seed] - tuned[seed] for seed in both]
            rows[recipe] = {
                "scores": [round(found[seed], 2) for seed in sorted(found)],
                "mean": round(statistics.fmean(found.values()), 2),
                "deviation": round(statistics.stdev(found.values()), 2) if len(found) > 1 else None,
                "against_tuned": round(statistics.fmean(differences), 2) if both else None,
                "seconds": round(statistics.fmean(seconds[key]), 1),
            }
        if rows:
            tasks[name] = {"metric": BENCHMARKS[name].metric, "recipes": rows}
    overall = {}
    for recipe in ("default", *RECIPES):
        found = [row["recipes"][recipe]["against_tuned"] for row in tasks.values() if recipe in row["recipes"]]
        if found and None not in found:
            overall[recipe] = {
                "tasks": len(found),
                "mean_against_tuned": round(statistics.fmean(found), 2),
                "worst_against_tuned": min(found),
                "mean_shortfall": round(statistics.fmean(max(-difference, 0.0) for difference in found), 2),
            }
    return {"tasks": tasks, "recipes": overall}


def print_summary(summary: dict[str, Any]) -> None:
    for name, task in summary["tasks"].items():
        print(f"{name}, {task['metric']}")
        for recipe, row in task["recipes"].items():
            deviation = "" if row["deviation"] is None else f" ± {row['deviation']:.2f}"
            against = "" if row["against_tuned"] is None else f"{row['against_tuned']:+.2f}"
            print(
                f"  {recipe:<40}{row['mean']:7.2f}{deviation:<8}{against:>8}  {row['scores']}  {row['seconds']:.0f} s"
            )
    for recipe, row in summary["recipes"].items():
        mean, worst = row["mean_against_tuned"], row["worst_against_tuned"]
        shortfall = f"shortfall {row['mean_shortfall']:.2f}"
        print(f"{recipe:<42}mean {mean:+.2f}, worst {worst:+.2f}, {shortfall}, {row['tasks']} tasks")


def print_small(records: Sequence[dict[str, Any]]) -> None:
    """Scores of runs on a few examples by the number of epochs."""
    scores: dict[tuple[str, int, int, int, str], list[float]] = defaultdict(list)
    for record in records:
        if record["part"] == "small":
            settings = {key: value for key, value in record["settings"].items() if key != "num_epochs"}
            epochs = record["settings"]["num_epochs"]
            key = record["name"], record["size"], epochs, record["steps"], " ".join(map(str, settings.values()))
            scores[key].append(record["score"])
    for (name, size, epochs, steps, settings), found in sorted(scores.items()):
        each = ", ".join(f"{score:.1f}" for score in found)
        mean = statistics.fmean(found)
        print(f"{name:<6}{size:>5} examples {epochs:>4} epochs {steps:>4} steps {mean:6.1f}  [{each}]  {settings}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("--output", type=Path, required=True, metavar="DIR")
    table = commands.add_parser("table")
    table.add_argument("files", nargs="+", type=Path, metavar="FILE")
    table.add_argument("--best", nargs="+", metavar="RECIPE", help="print the one of these with the least shortfall")
    table.add_argument("--save", action="store_true", help="write benchmarks/results/default_recipe.json")
    for part in ("tune", "final", "small"):
        command = commands.add_parser(part)
        command.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}, in this order")
        command.add_argument("--recipe", nargs="+", choices=[*RECIPES, "tuned", "default"], help="default: all")
        command.add_argument("--output", type=Path, required=True, metavar="DIR")
        command.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="data, or a folder of `pack`")
        command.add_argument("--done", type=Path, metavar="FILE", help="results of runs that are not repeated")
        command.add_argument("--seeds", type=int, default=3)
        command.add_argument("--workers", type=int, default=12, help="runs at a time")
        command.add_argument("--budget", type=float, default=480, metavar="SECONDS")
        command.add_argument("--limit", type=int, default=0, help="examples of each part; 0: all")
        command.add_argument("--device", default="auto")
    options = parser.parse_args(arguments)
    if options.command == "pack":
        pack(options.output)
    elif options.command == "table":
        records = read_records(options.files)
        summary = {part: summarize(records, part) for part in ("tune", "final")}
        if options.best:
            overall = summary["tune"]["recipes"]
            print(min(options.best, key=lambda recipe: overall[recipe]["mean_shortfall"]))
            return
        for part, content in summary.items():
            print(f"== {part}")
            print_summary(content)
        print_small(records)
        if options.save:
            (machine,) = {record["machine"] for record in records}
            print(save_results("default_recipe", {"machine": machine, "model": MODEL, "settings": RECIPES, **summary}))
    else:
        names = options.names or (SMALL_NAMES if options.command == "small" else NAMES)
        recipes = options.recipe or (["tuned", *RECIPES] if options.command == "tune" else ["tuned"])
        if options.command == "final" and "tuned" not in recipes:
            recipes = [*recipes, "tuned"]
        done = {_identity(record) for record in read_records([options.done])} if options.done else set()
        planned = jobs(options.command, names, recipes, options.seeds)
        run_all(
            [job for job in planned if _identity(asdict(job) | {"settings": dict(job.settings)}) not in done], options
        )


if __name__ == "__main__":
    main()
