"""A bulk job: the rows of an input to the rows of an output file, shard by shard; can be killed and continued.

The input is read twice: first to check, count and hash its rows (`scan_rows`), then to compute (`Job.run`). An input
that can be read only once is copied to a temporary file. Prints nothing: the functions yield what happens.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, Generic, Literal, TypeVar

import torch

from regard.checkpoints.loaded_model import LoadedModel
from regard.data.files import is_rereadable
from regard.errors import InputError
from regard.events import Event, Note, Progress
from regard.files import storage
from regard.inference.bulk.parts import PartFolder, PartTask, is_part_folder
from regard.inference.bulk.ray_engine import RayCluster, compute_on_ray
from regard.inference.bulk.shards import Block, ShardFolder, WriteRows, manifest, partial_folder
from regard.inference.bulk.workers import IN_FLIGHT, Compute, Computed, ModelFiles, ShardTask, compute_in_workers
from regard.wording import count_of

SHARD_SIZE = 4096  # rows
R = TypeVar("R")


class BulkProgress(Progress):
    """`done` of `total` rows are finished in this run; an earlier run had finished `resumed` others."""

    type: Literal["bulk_progress"] = "bulk_progress"  # type: ignore[assignment]
    resumed: int


class DamageNote(Note):
    """Damage that is repaired by computing again."""


class InputChanged(InputError):
    """The input has changed since it was scanned."""


@dataclass(frozen=True)
class InputRows(Generic[R]):
    """A scanned input of `count` rows; iterating over it reads them again.

    `rereadable`: another process can read it again; standard input or a pipe cannot.
    """

    name: str
    count: int
    digest: str
    rereadable: bool
    read: Callable[[], Iterator[R]]
    encode: Callable[[R], object]

    def __iter__(self) -> Iterator[R]:
        """The rows again. Rows appended meanwhile are ignored; any other change is an error, raised at the end."""
        digest, trouble = hashlib.sha256(), ""
        try:
            for row in islice(self.read(), self.count):
                digest.update(_line(self.encode(row)))
                yield row
        except InputError as error:
            trouble = f" ({error})"
        if trouble or digest.hexdigest() != self.digest:
            raise InputChanged(
                f"{self.name} was changed while it was read{trouble}; nothing is kept: run the command again"
            )


def scan_rows(
    rows: Iterable[R],
    *,
    name: str,
    again: Callable[[], Iterator[R]] | None,
    rereadable: bool,
    spool: IO[str],
    encode: Callable[[R], object] = lambda row: row,
    decode: Callable[[Any], R] = lambda row: tuple(row),  # type: ignore[assignment,return-value]
) -> InputRows[R]:
    """Read `rows` once. `again` reads them anew; without it they are copied to `spool`, which holds a row per line.
    `rereadable`: another process could read them, too.

    `encode` makes JSON of a row, of which the hash is computed, and `decode` the row of that.
    """
    digest, count = hashlib.sha256(), 0
    for row in rows:
        line = _line(encode(row))
        digest.update(line)
        if again is None:
            spool.write(line.decode("ascii"))
        count += 1

    def unspool() -> Iterator[R]:
        spool.seek(0)
        return (decode(json.loads(line)) for line in spool)

    return InputRows(name, count, digest.hexdigest(), rereadable, again or unspool, encode)


def _line(row: object) -> bytes:
    return json.dumps(row, default=str).encode("ascii") + b"\n"


@dataclass(frozen=True)
class JobOutcome:
    """`resumed` rows were finished by an earlier run. `already_done`: the output was finished, nothing was computed."""

    output: Path | str
    totals: dict[str, int]
    resumed: int
    seconds: float
    already_done: bool = False


@dataclass(frozen=True, kw_only=True)
class Job(Generic[R]):
    """What is computed of the rows of an input with a model, and how it is written.

    `compute` yields blocks and, between them, the number of rows that are finished so far; `load` returns it in another
    process, if the model can be read from files, and is pickled. `settings` are what the output depends on beside the
    rows and the model. `totals` are columns of the blocks that are added up.

    With several `devices`, by default those of the model, there is a process for each that computes whole shards. A job
    with few shards uses fewer of them, or none. With a `cluster` its workers compute all shards.
    """

    inputs: InputRows[R]
    model: LoadedModel
    settings: Mapping[str, object]
    compute: Callable[[Iterator[R]], Iterator[Block | int]]
    load: Callable[[ModelFiles, torch.device], Compute]
    write: WriteRows
    stage: str
    unit: str = "texts"
    totals: Sequence[str] = ()
    shard_size: int = SHARD_SIZE
    devices: Sequence[str] | None = None
    cluster: RayCluster | None = None

    def run(self, output: Path, *, restart: bool = False, force: bool = False) -> Generator[Event, None, JobOutcome]:
        """Compute the shards that are missing, and write all of them to the output.

        For a file, finished shards are kept in `output` + ".partial" until the end: after a crash the same job
        continues, and another job is refused unless `restart` discards them. A finished job leaves its record in
        `output` + ".regard.json" with the totals: the same job again finds the file intact and computes nothing. The
        finished file of another job is refused unless `restart`, one that is not Regard's or was changed unless
        `force`. An output that is a folder has a Parquet file for each shard, which the process that computes it
        writes, on whatever node.
        """
        settings = {**self.settings, "shard_size": self.shard_size}
        record = manifest(
            digest=self.inputs.digest, model=self.model, continuable=self.inputs.rereadable, settings=settings
        )
        files = ModelFiles.of(self.model, record)
        if self.cluster is not None and files is None:
            raise InputError("--engine ray needs a model that is read from a folder; save it, and name the folder")
        task: ShardTask | None
        compute, task = self.compute, None if files is None else partial(self.load, files)
        shards: ShardFolder | PartFolder
        if not is_part_folder(output):
            shards = ShardFolder(output, record)
        else:
            shards = PartFolder(storage.normalize(output), record)
            part_task = PartTask(shards.output, shards.job_hash, tuple(self.totals), self.write, task)
            compute, task = part_task.writing(self.compute), None if task is None else part_task
        count, size = self.inputs.count, self.shard_size
        sizes = {number: min(size, count - number * size) for number in range(-(-count // size))}
        with shards.locked(restart=restart):
            started = time.perf_counter()
            earlier = shards.read_output(self.totals, len(sizes), restart=restart, force=force)
            if earlier is not None:
                seconds = time.perf_counter() - started
                return JobOutcome(shards.output, earlier, count, seconds, already_done=True)
            missing, computed, notes = self._plan(shards, sizes, compute, task)
            yield from notes
            total = sum(missing.values())
            resumed = count - total
            done, counts = 0, dict[int, int]()  # finished rows, and those of the shards that are being computed
            progress: dict[str, Any] = {"stage": self.stage, "unit": self.unit, "total": total, "resumed": resumed}
            yield BulkProgress(done=0, **progress)
            try:
                with closing(computed):
                    for number, item in computed:
                        if isinstance(item, dict):
                            shards.add(number, item)
                            continue
                        counts.pop(number, None)
                        if item is None:
                            shards.finish(number)
                            done += missing[number]
                        else:
                            counts[number] = item
                        yield BulkProgress(done=done + sum(counts.values()), **progress)
            except InputChanged:
                shards.clear()
                raise
            sums = dict.fromkeys(self.totals, 0)
            for block in shards.blocks(*self.totals):
                sums = {name: value + int(block[name].sum()) for name, value in sums.items()}
            shards.write_output(self.write, count, sums, force=force)
            return JobOutcome(shards.output, sums, resumed, time.perf_counter() - started)

    def _plan(
        self, shards: ShardFolder | PartFolder, sizes: Mapping[int, int], compute: Compute, task: ShardTask | None
    ) -> tuple[dict[int, int], Computed, list[Note]]:
        """The rows of each shard that is missing or damaged, what computes these shards, and notes about that."""
        notes: list[Note] = []
        shards.remove_damaged(sizes, lambda problem: notes.append(DamageNote(message=problem)))
        present = set(shards.finished())
        missing = {number: rows for number, rows in sizes.items() if number not in present}
        if resumed := self.inputs.count - sum(missing.values()):
            notes.append(Note(message=f"continuing behind {resumed:,} of {self.inputs.count:,} {self.unit}"))
        if not self.inputs.rereadable:
            once = f"{self.inputs.name} is read once: if this run is interrupted, it cannot be continued"
            notes.append(Note(message=once))
        devices = self.model.devices if self.devices is None else [torch.device(name) for name in self.devices]
        # A worker that would have no second shard to compute is not worth its start.
        devices = devices[: len(missing) // IN_FLIGHT] if task is not None and os.name == "posix" else ()
        remedy = "the same command continues" if self.inputs.rereadable else "run the command again"
        rows: Iterator[tuple[int, Iterator[Any]]] = _missing_shards(self.inputs, sizes, missing)
        if isinstance(shards, PartFolder):  # whose rows are whole shards
            rows = ((number, iter([(number, list(shard))])) for number, shard in rows)
        if self.cluster is not None and task is not None and missing:
            address = self.cluster.address
            where = "started on this machine" if address is None else f"at {address}"
            notes.append(Note(message=f"computing {count_of(len(missing), 'shard')} on Ray, {where}"))
            computed = compute_on_ray(task, self.cluster, rows, count=len(missing), remedy=remedy)
        elif task is not None and len(devices) > 1:
            notes.append(Note(message=f"computing in {len(devices)} processes, on {', '.join(map(str, devices))}"))
            computed = compute_in_workers(task, devices, rows, remedy=remedy)
        else:
            computed = _compute_in_order(compute, rows)
        return missing, computed, notes


def spool_folder(output: Path | None) -> Path | None:
    """Where to copy an input that can be read once: beside the output; None is the system's temporary folder."""
    return None if output is None or is_part_folder(output) else output.parent


def how_to_continue(output: Path | None, source: object) -> str:
    """What remains of a job that was interrupted, in words. `source`: a path, "-", or rows in memory."""
    if output is not None and is_part_folder(output):
        return f"the finished parts are kept in {storage.normalize(output)}: the same command continues"
    if output is not None and (folder := partial_folder(output)).is_dir():
        return f"the finished part is kept in {folder}: the same command continues"
    if isinstance(source, str | Path) and not is_rereadable(source):
        name = "standard input" if str(source) == "-" else source
        return f"{name} cannot be continued: nothing is kept; use a file to be able to"
    return "nothing was finished yet: the same command starts anew"


def _missing_shards(
    inputs: InputRows[R], sizes: Mapping[int, int], missing: Collection[int]
) -> Iterator[tuple[int, Iterator[R]]]:
    """The missing shards with their rows, which must be read before the next shard."""
    rows = iter(inputs)
    for number, size in sizes.items():
        shard = islice(rows, size)
        if number in missing:
            yield number, shard
        else:
            deque(shard, maxlen=0)
    next(rows, None)  # after the last row, a changed input is noticed


def _compute_in_order(compute: Compute, shards: Iterable[tuple[int, Iterator[Any]]]) -> Computed:
    """Compute one shard after the other in this process; None: a shard is complete."""
    for number, rows in shards:
        for item in compute(rows):
            yield number, item
        yield number, None
