"""Several devices at a time: one worker process per device, each with its own copy of the model, computes whole shards.

This process reads the rows, sends them and receives the blocks; it alone writes files.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.inference.bulk.shards import Block, Manifest, fingerprint, is_identified_by_files
from regard.inference.load_model import load_model
from regard.worker_pool import Work, WorkerPool

IN_FLIGHT = 2  # shards per worker: the one that it computes, and the next
# Yields blocks of rows and, between them, the number of rows that are finished so far.
Compute = Callable[[Iterator[Any]], Iterator[Block | int]]
# The same for numbered shards; None: the shard is complete.
Computed = Generator[tuple[int, Block | int | None], None, None]
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
    """What a worker gets first: its task, its device, and the settings of torch that results depend on."""

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

    def work(self) -> Work:
        warnings.simplefilter("ignore")  # the process that started this one has loaded the same model and shown them
        compute = self.load()

        def work(rows: list[Any], reply: Callable[[Any], None]) -> None:
            for item in compute(iter(rows)):
                reply(item)

        return work


def compute_in_workers(
    task: ShardTask,
    devices: Sequence[torch.device],
    shards: Iterable[tuple[int, Iterator[Any]]],
    *,
    remedy: str,
) -> Computed:
    """Compute numbered shards in one process per device, at most `IN_FLIGHT` per process at a time.

    Yields the number of a shard with a block, with the number of its rows that are finished so far, or with None when
    it is complete. Blocks of one shard come in order, shards in any order. If shards have errors, that of the first one
    is raised, as in a single process; `remedy` ends the message about a worker that died. Leaves no process behind when
    it ends or is closed.
    """
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    with WorkerPool(
        [
            (f"the worker process for {device}", WorkerSetup(task, device, threads, precision).work)
            for device in devices
        ],
        in_flight=IN_FLIGHT,
        advice=f"there may be too little memory; {remedy}",
        # The tokenizer would take all cores in each worker.
        environment={
            "RAYON_NUM_THREADS": os.environ.get("RAYON_NUM_THREADS")
            or str(max(1, (os.cpu_count() or 1) // len(devices)))
        },
    ) as pool:
        yield from pool.run((number, list(rows)) for number, rows in shards)
