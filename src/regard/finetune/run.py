"""A fine-tuning run from files to a folder: read, tuned once a seed, compared, and resumed at will.

Knows the order of the work and what lies in the output folder. Prints nothing: the caller is told of events.

    config.toml run.json   the settings, and what the run was made from
    events.jsonl           what happened, a line an event
    seeds/                 the result of each seed that is done, the best model of them, and checkpoints of the next
    config.json model.safetensors task.json report.json ...   the best seed's model, once all are done
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard import loading
from regard.data.examples import labelled
from regard.data.readers import Read
from regard.data.split import split
from regard.disk import atomic_write
from regard.errors import InputError
from regard.finetune.config import Config
from regard.finetune.report import Report
from regard.finetune.sources import check_labels, read_examples
from regard.finetune.trainer import Note, Outcome, Trainer
from regard.tasks.base import Task
from regard.tasks.catalog import task_named
from regard.tasks.folder import Solved, read_task, write_task
from regard.tasks.model import Tuned
from regard.tasks.solve import score
from regard.text import Tokenizer
from regard.train.events import Events
from regard.train.stopping import stopping
from regard.unfinished import changes, locked
from regard.weights.documents import json_bytes, read_json

__all__ = ["CONFIG", "fit"]

CONFIG, RUN, EVENTS, SEEDS, BEST = "config.toml", "run.json", "events.jsonl", "seeds", "best"
Said = Callable[[str], None]


def fit(
    task: str,
    train: str | Read[Any],
    dev: str | Read[Any] | None = None,
    *,
    model: str,
    output: Path,
    config: Config | None = None,
    columns: Sequence[str] | None = None,
    parts: str | None = None,
    resume: bool = False,
    device: torch.device,
    say: Said = lambda text: None,
    on_event: Callable[[Mapping[str, Any]], None] = lambda event: None,
) -> Report:
    """Tune `model` for a task on labelled examples, and write the best seed's into `output`.

    `train` and `dev` are files or what a reader made of them. Without `dev`, one is taken out of `train` by `parts`
    ("90/10" where none are given); of three parts the last is set aside and scored once, as "test".
    """
    config = config or Config.load()
    kind = task_named(task)
    data = _data(task, train, dev, columns=columns, parts=parts)
    for name, read in data.items():
        say(f"{name}: {len(read.examples):,} examples of {read.path} ({read.how})")
        for reason, count in read.dropped.items():
            say(f"{name}: {count:,} left out: {reason}")
    learned = kind.learn(data["train"].examples)
    for read in data.values():
        check_labels(learned, read)
    shared = _shared(learned, model, config)
    run = {"task": task, "model": model, "data": {name: _digest(read) for name, read in data.items()}}
    _open(output, config, run, resume=resume)
    with locked(output), Events(output / EVENTS) as events:
        atomic_write(output / CONFIG, config.toml().encode())
        atomic_write(output / RUN, json_bytes(run))

        def note(event: str, **values: object) -> None:
            on_event(events.add(event, **values))

        outcomes = _seeds(shared, data, config, output / SEEDS, device=device, note=note)
        about = {
            name: {"path": read.path, "examples": len(read.examples), "how": read.how} for name, read in data.items()
        }
        settings = {name: dict(getattr(config, name)) for name in config.sections()}
        report = Report(task, model, kind.main, about, settings, outcomes)
        best = read_task(output / SEEDS / BEST)
        if "test" in data:
            report = _tested(report, best, data["test"], device=device)
        files = {"report.json": json_bytes(report.document()), "report.md": report.markdown().encode()}
        write_task(best, output, files=files)
        note("end", **report.mean)
        shutil.rmtree(output / SEEDS)
    return report


@dataclass(frozen=True, eq=False)
class _Shared:
    """What all seeds begin with."""

    task: Task[Any]
    encoder: nn.Module
    tokenizer: Tokenizer
    length: int

    def new(self, seed: int) -> Tuned:
        torch.manual_seed(seed)
        return Tuned.new(copy.deepcopy(self.encoder), self.task)

    def solved(self, model: Tuned) -> Solved:
        return Solved(self.task, model, self.tokenizer, self.length)


def _shared(task: Task[Any], model: str, config: Config) -> _Shared:
    encoder, tokenizer = loading.load(model)
    if tokenizer is None:
        raise InputError(f"{model} came without a tokenizer, so it reads no text; use another model")
    positions: int = getattr(encoder.config, "positions", 512)
    return _Shared(task, encoder, tokenizer, min(config.training.length or task.length, positions))


def _seeds(
    shared: _Shared,
    data: Mapping[str, Read[Any]],
    config: Config,
    folder: Path,
    *,
    device: torch.device,
    note: Note,
) -> list[Outcome]:
    """Tune once a seed; a seed that is done is not done again."""
    task = shared.task
    items = task.items(data["train"].examples, shared.solved(shared.new(0)).rows)
    if cut := sum(row.cut > 0 for item in items for row in item.rows):
        note("cut", rows=cut, of=len(items), length=shared.length)
    dev = data["dev"].examples
    outcomes: list[Outcome] = []
    for seed in range(config.run.seed, config.run.seed + config.run.seeds):
        result = folder / f"{seed}.json"
        if result.is_file():
            outcomes.append(Outcome(**read_json(result)))  # type: ignore[arg-type]
            continue
        trainer = Trainer(
            shared.new(seed),
            task,
            items,
            config,
            seed=seed,
            device=device,
            folder=folder / f"checkpoints-{seed}",
            judge=lambda tuned: score(shared.solved(tuned), dev, device=device),
            note=note,
        )
        with stopping() as stop:
            outcome = trainer.go(stop)
            if outcome is None:
                stop.now()
        assert outcome is not None
        best = max((one.scores[task.main] for one in outcomes), default=float("-inf"))
        if outcome.scores[task.main] > best or not (folder / BEST).is_dir():
            write_task(shared.solved(trainer.model.eval()), folder / BEST)
        outcomes.append(outcome)
        atomic_write(result, json_bytes(asdict(outcome)))
        shutil.rmtree(folder / f"checkpoints-{seed}", ignore_errors=True)
    return outcomes


def _data(
    task: str, train: str | Read[Any], dev: str | Read[Any] | None, *, columns: Sequence[str] | None, parts: str | None
) -> dict[str, Read[Any]]:
    found = {"train": read_examples(task, train, columns=columns, labelled=True) if isinstance(train, str) else train}
    if dev is not None:
        if parts is not None:
            raise InputError("--dev and --split both say what to judge on; use one of them")
        found["dev"] = read_examples(task, dev, columns=columns, labelled=True) if isinstance(dev, str) else dev
    else:
        whole = found["train"]
        pieces = split(whole.examples, parts or "90/10")
        for name, places in zip(("train", "dev", "test"), pieces, strict=False):
            found[name] = Read(
                [whole.examples[place] for place in places],
                whole.path,
                f"{whole.how}; {name} part of {parts or '90/10'}",
                whole.dropped if name == "train" else {},
                [whole.lines[place] for place in places] if whole.lines else [],
            )
    for name, read in found.items():
        if not any(map(labelled, read.examples)):
            raise InputError(f"{read.path}: no example of the {name} data has a label, and a task is learned from them")
    return found


def _tested(report: Report, best: Solved, read: Read[Any], *, device: torch.device) -> Report:
    scores = score(best, read.examples, device=device)
    data = {**report.data, "test": {**report.data["test"], "scores": scores}}
    return Report(report.task, report.model, report.main, data, report.settings, report.outcomes)


def _open(output: Path, config: Config, run: Mapping[str, Any], *, resume: bool) -> None:
    """Refuse a folder that cannot be written or gone on with, before any work."""
    begun = (output / RUN).is_file() and (output / SEEDS).is_dir()
    if begun and not resume:
        raise InputError(f"{output} holds a run that was begun: go on with --resume, or choose another --output")
    if resume and not begun:
        raise InputError(f"{output} holds no run to resume; leave --resume out to begin one")
    if begun:
        before = read_json(output / RUN)
        differences = Config.load(output / CONFIG).differences(config) + changes(before, json.loads(json.dumps(run)))
        if differences:
            raise InputError(
                f"{output} was begun otherwise: {'; '.join(differences)}. Resume with those, or choose another --output"
            )
    elif (output / "config.json").exists():
        raise InputError(f"{output} holds a model, which this run would write over; choose another --output")
    try:
        (output / SEEDS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}; choose another --output") from None


def _digest(read: Read[Any]) -> str:
    return hashlib.sha256("\n".join(map(repr, read.examples)).encode()).hexdigest()[:16]
