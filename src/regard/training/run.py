"""A run of a recipe in an output folder: lock, manifest, log of events, report, and several processes.

regard.json            the manifest: which files of the folder belong to the run, and whether it is finished
config.toml run.json   the settings, and the data and models of the run
events.jsonl           the events, one line each
work/                  what an unfinished run needs, such as checkpoints; removed when it is finished
report.json            the result, beside the model
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard.device import choose_device
from regard.errors import InputError
from regard.events import drain, map_events
from regard.training.callbacks import Callbacks
from regard.training.events import Events, TrainingStarted
from regard.training.recipe import Recipe
from regard.training.run_folder import RunFolder, RunReport, log_events
from regard.training.tensorboard import TensorBoardLog
from regard.training.trainer import Trainer
from regard.training.world import World, join_world, num_processes

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class Session:
    """Where and with whom a recipe trains: the folder of the run, its work folder, the device and the processes."""

    output: Path
    work: Path
    device: torch.device
    world: World = field(default_factory=World)
    callbacks: Callbacks = field(default_factory=Callbacks)

    def trainer(self, recipe: Recipe, *, seed: int | None = None, checkpoints: str = CHECKPOINTS) -> Trainer:
        return Trainer(
            recipe,
            seed=seed,
            device=self.device,
            folder=self.work / checkpoints,
            callbacks=self.callbacks,
            world=self.world,
        )


def started(trainer: Trainer, *, examples: int) -> TrainingStarted:
    """The event before the first step of a run."""
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    return TrainingStarted(steps=trainer.steps, examples=examples, parameters=parameters)


def run(
    recipe: Recipe,
    output: str | os.PathLike[str],
    *,
    resume: bool = False,
    device: torch.device | str = "auto",
    tensorboard: str | os.PathLike[str] | None = None,
    callbacks: Callbacks | None = None,
) -> Events[Any]:
    """Train a recipe and write its result to `output`; returns its report.

    `resume` continues the run in the folder from its last checkpoint, or starts it; of a finished run it returns the
    report. `tensorboard` is a folder. Only the main process of several yields events and writes files.
    """
    if "processes" in recipe.refuses and (count := num_processes()) > 1:
        raise InputError(
            f"{recipe.kind} runs in one process, and torchrun started {count}: {recipe.refuses['processes']}; run it "
            "without torchrun"
        )
    board = TensorBoardLog.open(tensorboard)
    output, callbacks = Path(output), callbacks or Callbacks()
    with join_world() as world, ExitStack() as stack:
        place = world.device(choose_device(device) if isinstance(device, str) else device)
        session = Session(output, output / recipe.work, place, world, callbacks)
        events = _run(recipe, session, stack, resume=resume, tensorboard=board)
        return (yield from map_events(events, callbacks.on_event)) if world.is_main else drain(events)


def _run(
    recipe: Recipe, session: Session, stack: ExitStack, *, resume: bool, tensorboard: TensorBoardLog | None
) -> Events[RunReport]:
    world, output, done = session.world, session.output, None
    with world.main_only() as is_main:
        if is_main:
            yield from recipe.describe()
            folder = RunFolder(
                output,
                recipe.config,
                recipe.identity(),
                work=recipe.work,
                work_files=recipe.work_files(),
                prepared_files=recipe.prepared_files(),
                kind=f"{recipe.kind} run",
            )
            done = folder.finished() if resume else None
            if done is None:
                folder.open(resume=resume)
                stack.enter_context(folder.running())
    if done := world.broadcast_json(done):
        return recipe.report_class(output=os.fspath(output), **done)
    events = recipe.train(session)
    report = yield from (log_events(events, output, tensorboard=tensorboard) if world.is_main else events)
    document = world.broadcast_json(None if report is None else json.loads(report.file()))
    return report or recipe.report_class(output=os.fspath(output), **document)
