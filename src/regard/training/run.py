"""A run of a training job in an output folder: lock, manifest, log of events, report, and several processes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from regard.device import choose_device
from regard.errors import InputError
from regard.events import drain, map_events
from regard.training.distributed.world import World, join_world, num_processes
from regard.training.events import Events, TrainingStarted
from regard.training.recipe import Recipe, TrainingRun
from regard.training.run_folder import RunFolder, log_events
from regard.training.stopping import Callbacks
from regard.training.tensorboard import TensorBoardLog
from regard.training.trainer import Trainer

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class Session:
    """Where and with whom a job trains: the folder of the run, its work folder, the device and the processes."""

    world: World
    callbacks: Callbacks
    device: torch.device
    output: Path
    work: Path = Path()

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


def run_opened(job: TrainingRun, session: Session, *, resume: bool, tensorboard: TensorBoardLog | None) -> Events[Any]:
    """Run a job that is opened: own the folder, train, and mark the run as finished."""
    world, output, done = session.world, session.output, None
    with ExitStack() as stack:
        with world.main_only() as is_main:
            if is_main:
                folder = RunFolder(job, output)
                done = folder.finished() if resume else None
                if done is None:
                    folder.open(resume=resume)
                    stack.enter_context(folder.running())
        if done := world.broadcast_json(done):
            return job.report_class(output=os.fspath(output), **done)
        events = job.train(replace(session, work=output / job.work))
        report = yield from (log_events(events, output, tensorboard=tensorboard) if world.is_main else events)
        document = world.broadcast_json(None if report is None else json.loads(report.file()))
        return report or job.report_class(output=os.fspath(output), **document)


def run(
    job: TrainingRun,
    output: str | os.PathLike[str],
    *,
    resume: bool = False,
    device: torch.device | str = "auto",
    tensorboard: str | os.PathLike[str] | None = None,
    callbacks: Callbacks | None = None,
    body: Callable[..., Events[Any]] = run_opened,
) -> Events[Any]:
    """Train and write the result to `output`; returns the report of the job.

    `resume` continues the run in the folder from its last checkpoint, or starts it; of a finished run it returns the
    report. `tensorboard` is a folder. Under `torchrun` several processes train together; only the main one yields
    events and writes files. `body` takes the place of `run_opened`.
    """
    if "processes" in job.refuses and (count := num_processes()) > 1:
        raise InputError(
            f"{job.kind} runs in one process, and torchrun started {count}: {job.refuses['processes']}; run it without "
            "torchrun"
        )
    board = None if tensorboard is None else TensorBoardLog(tensorboard)
    functions = callbacks or Callbacks()
    with join_world() as world:

        def steps() -> Events[Any]:
            yield from job.open(world)
            place = choose_device(device) if isinstance(device, str) else device
            session = Session(world, functions, world.device(place), Path(output))
            return (yield from body(job, session, resume=resume, tensorboard=board))

        return (yield from map_events(steps(), functions.on_event)) if world.is_main else drain(steps())
