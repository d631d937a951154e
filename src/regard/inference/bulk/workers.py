"""Several devices at a time: one worker process per device, each with its own copy of the model, computes whole shards.

This process reads the rows, sends them and receives the blocks; it alone writes files. A worker is the program
`regard.inference.bulk.worker`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.inference.bulk.shards import Block, Manifest, fingerprint, is_identified_by_files
from regard.inference.load_model import load_model
from regard.worker_process import WorkerFailure, WorkerProcess

IN_FLIGHT = 2  # shards per worker: the one that it computes, and the next
# Yields blocks of rows and, between them, the number of rows that are finished so far.
Compute = Callable[[Iterator[Any]], Iterator[Block | int]]
# What workers compute: loads the model onto a device. It is pickled, names the model and holds the settings.
ShardTask = Callable[[torch.device], Compute]


@dataclass(frozen=True)
class ModelFiles:
    """A model that other processes can load: its folder, and the hash of its files in the record of the job."""

    folder: Path
    identity: str

    @staticmethod
    def of(model: LoadedModel, record: Manifest) -> ModelFiles | None:
        """The files of a model that is read from them; None for a model that exists only in memory."""
        if model.folder is None or not is_identified_by_files(model):
            return None
        return ModelFiles(model.folder, str(record["model"]))

    def load(self, device: torch.device) -> LoadedModel:
        """Load the model; InputError if its files have changed since the job began."""
        model = load_model(self.folder, device=device)
        if fingerprint(self.folder, verified=True) != self.identity:
            raise InputError(f"{self.folder} was changed while it was read; run the command again")
        return model


@dataclass(frozen=True)
class WorkerSetup:
    """The first message to a worker: its task, its device, and the settings of torch that results depend on."""

    task: ShardTask
    device: torch.device
    num_threads: int
    matmul_precision: str

    def load(self) -> Compute:
        torch.set_num_threads(self.num_threads)
        torch.set_float32_matmul_precision(self.matmul_precision)
        if self.device.index is not None and self.device.type != "cpu":
            torch.accelerator.set_device_index(self.device.index)
        return self.task(self.device)


def compute_in_workers(
    task: ShardTask,
    devices: Sequence[torch.device],
    shards: Iterable[tuple[int, Iterator[Any]]],
    *,
    remedy: str,
) -> Generator[tuple[int, Block | int | None], None, None]:
    """Compute numbered shards in one process per device, at most `IN_FLIGHT` per process at a time.

    Yields the number of a shard with a block, with the number of its rows that are finished so far, or with None when
    it is complete. Blocks of one shard come in order, shards in any order. If shards have errors, that of the first one
    is raised, as in a single process; `remedy` ends the message about a worker that died. Leaves no process behind when
    it ends or is closed.
    """
    workers: list[Worker] = []
    waiting = iter(shards)
    failures: dict[int, WorkerFailure] = {}
    try:
        for device in devices:
            workers.append(Worker(device, count=len(devices), remedy=remedy))
        for worker in workers:
            worker.send(WorkerSetup(task, worker.device, torch.get_num_threads(), torch.get_float32_matmul_precision()))
        for worker in workers * IN_FLIGHT:
            worker.send_shard(next(waiting, None))
        while any(number < min(failures, default=number + 1) for worker in workers for number in worker.in_flight):
            for worker in _ready([worker for worker in workers if worker.in_flight]):
                number, item = worker.receive()
                if isinstance(item, WorkerFailure):
                    if number is None:
                        raise item.error()
                    failures[number] = item
                elif item is None and not failures:
                    worker.send_shard(next(waiting, None))
                if not isinstance(item, WorkerFailure):
                    assert number is not None
                    yield number, item
        if failures:
            raise failures[min(failures)].error()
        for worker in workers:
            worker.finish()
    finally:
        for worker in workers:
            worker.kill()


class Worker(WorkerProcess):
    """A worker process; `in_flight` are the shards that it has not finished."""

    def __init__(self, device: torch.device, *, count: int, remedy: str) -> None:
        self.device = device
        self.in_flight: list[int] = []
        # The tokenizer would take all cores in each worker.
        threads = os.environ.get("RAYON_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // count))
        super().__init__(
            "regard.inference.bulk.worker",
            name=f"the worker process for {device}",
            advice=f"there may be too little memory; {remedy}",
            environment={"RAYON_NUM_THREADS": threads},
        )

    def send_shard(self, shard: tuple[int, Iterator[Any]] | None) -> None:
        """Send a shard for the worker to compute; None: there is no other."""
        if shard is not None:
            number, rows = shard
            self.in_flight.append(number)
            self.send((number, list(rows)))

    def receive(self) -> tuple[int | None, Block | int | WorkerFailure | None]:
        """The next message of the worker."""
        number, item = super().receive()
        if item is None or (isinstance(item, WorkerFailure) and number is not None):
            self.in_flight.remove(number)
        return number, item


def _ready(workers: Sequence[Worker]) -> list[Worker]:
    """The workers that have a message, or have ended."""
    ready = wait([worker.receiver for worker in workers])
    return [worker for worker in workers if worker.receiver in ready]
