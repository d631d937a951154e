"""A run of a training job in an output folder: lock, manifest, log of events, report, and several processes."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from regard.cancellation import check_cancelled
from regard.device import choose_device
from regard.errors import InputError
from regard.events import drain, map_events
from regard.training.distributed.world import World, join_world, num_processes
from regard.training.events import Events, TrainingStarted
from regard.training.recipe import Recipe, TrainingRun
from regard.training.run_folder import EVENTS, EventLog, RunFolder
from regard.training.stopping import Callbacks
from regard.training.tensorboard import TensorBoardLog
from regard.training.trainer import Trainer

CHECKPOINTS = "checkpoints"
R = TypeVar("R")


@dataclass(frozen=True)
class Session:
    """Where and with whom a job trains: the folder of the run, its work folder, the device and the processes."""

    world: World
    callbacks: Callbacks
    device: torch.device
    output: Path
    work: Path

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


def in_main(events: Events[R], world: World, callbacks: Callbacks) -> Events[R]:
    """Events that are not logged: in the main process those of the generator, in the others none."""
    return (yield from map_events(events, callbacks.on_event)) if world.is_main else drain(events)


def run(
    job: TrainingRun,
    output: str | os.PathLike[str],
    *,
    resume: bool = False,
    device: torch.device | str = "auto",
    tensorboard: str | os.PathLike[str] | None = None,
    callbacks: Callbacks | None = None,
) -> Events[Any]:
    """Train and write the result to `output`; returns the report of the job.

    `resume` continues the run in the folder from its last checkpoint, or starts it; of a finished run it returns the
    report. `tensorboard` is a folder. Under `torchrun` several processes train together; only the main one yields
    events, writes files and prints the report.
    """
    if "processes" in job.refuses and (count := num_processes()) > 1:
        raise InputError(
            f"{job.kind} runs in one process, and torchrun started {count}: {job.refuses['processes']}; run it without "
            "torchrun"
        )
    board = None if tensorboard is None else TensorBoardLog(tensorboard)
    callbacks = callbacks or Callbacks()
    with join_world() as world, ExitStack() as stack:
        yield from in_main(job.open(world), world, callbacks)
        place = world.device(choose_device(device) if isinstance(device, str) else device)
        session = Session(world, callbacks, place, Path(output), Path(output, job.work))
        report = done = None
        with world.main_only() as is_main:
            if is_main:
                folder = RunFolder(job, session.output)
                done = folder.finished() if resume else None
                if done is None:
                    folder.open(resume=resume)
                    stack.enter_context(folder.running())
        if (done := world.broadcast_json(done)) is not None:
            report = job.report_class(output=os.fspath(output), **done)
        else:
            report = yield from in_main(job.prepare(session), world, callbacks)
        if report is None:
            log = stack.enter_context(closing(EventLog(session.output / EVENTS, board))) if world.is_main else None
            events = stack.enter_context(closing(job.train(session)))
            while True:
                try:
                    event = next(events)
                except StopIteration as end:
                    report = end.value
                    break
                if log is not None:
                    check_cancelled()
                    callbacks.on_event(log.add(event))
                    yield event
            if log is not None:
                log.finish()
            document = world.broadcast_json(None if report is None else json.loads(report.file()))
            report = report or job.report_class(output=os.fspath(output), **document)
        report._quiet = not world.is_main
        return report
