"""A run of a training job in an output folder: lock, manifest, log of events, report, and several processes.

regard.json            the manifest: which files of the folder belong to the run, and whether it is finished
config.toml run.json   the settings, and the data and models of the run
events.jsonl           the events, one line each
work/                  what an unfinished run needs, such as checkpoints; removed when it is finished
report.json            the result, beside the model
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from regard.device import choose_device
from regard.errors import InputError
from regard.events import drain, map_events
from regard.training.callbacks import Callbacks
from regard.training.distributed.world import World, join_world, num_processes
from regard.training.events import Events, TrainingStarted
from regard.training.recipe import Recipe, TrainingRun
from regard.training.run_folder import RunFolder, log_events
from regard.training.tensorboard import TensorBoardLog
from regard.training.trainer import Trainer

CHECKPOINTS = "checkpoints"
R = TypeVar("R")


@dataclass(frozen=True)
class Session:
    """Where and with whom a job trains: the folder of the run, its work folder, the device and the processes."""

    world: World = field(default_factory=World)
    callbacks: Callbacks = field(default_factory=Callbacks)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    output: Path = Path()
    work: Path = Path()

    def at(self, output: Path, device: torch.device | str) -> Session:
        """The same in an output folder, on the device of this process."""
        place = choose_device(device) if isinstance(device, str) else device
        return replace(self, output=output, device=self.world.device(place))

    def main_events(self, events: Events[R]) -> Events[R]:
        """The events of the main process, which callbacks see too; other processes yield none."""
        if not self.world.is_main:
            return drain(events)
        return (yield from map_events(events, self.callbacks.on_event))

    def trainer(self, recipe: Recipe, *, seed: int | None = None, checkpoints: str = CHECKPOINTS) -> Trainer:
        return Trainer(
            recipe,
            seed=seed,
            device=self.device,
            folder=self.work / checkpoints,
            callbacks=self.callbacks,
            world=self.world,
        )


@contextmanager
def joined(callbacks: Callbacks | None = None) -> Iterator[Session]:
    """A session of the processes that `torchrun` started, or of this one."""
    with join_world() as world:
        yield Session(world, callbacks or Callbacks())


def started(trainer: Trainer, *, examples: int) -> TrainingStarted:
    """The event before the first step of a run."""
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    return TrainingStarted(steps=trainer.steps, examples=examples, parameters=parameters)


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
    events and writes files.
    """
    refuse_processes(job)
    board = TensorBoardLog.open(tensorboard)
    with joined(callbacks) as session:

        def steps() -> Events[Any]:
            yield from job.open(session.world)
            return (yield from run_opened(job, session.at(Path(output), device), resume=resume, tensorboard=board))

        return (yield from session.main_events(steps()))


def refuse_processes(job: TrainingRun) -> None:
    """InputError under `torchrun` with several processes, for training that one process does."""
    if "processes" in job.refuses and (count := num_processes()) > 1:
        raise InputError(
            f"{job.kind} runs in one process, and torchrun started {count}: {job.refuses['processes']}; run it without "
            "torchrun"
        )


def run_opened(job: TrainingRun, session: Session, *, resume: bool, tensorboard: TensorBoardLog | None) -> Events[Any]:
    """Run a job that is opened: own the folder, train, and mark the run as finished."""
    world, output, done = session.world, session.output, None
    with ExitStack() as stack:
        with world.main_only() as is_main:
            if is_main:
                folder = run_folder(job, output)
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


def run_folder(job: TrainingRun, output: Path) -> RunFolder:
    return RunFolder(
        output,
        job.config,
        job.identity(),
        work=job.work,
        work_files=job.work_files(),
        prepared_files=job.prepared_files(),
        kind=f"{job.kind} run",
    )
