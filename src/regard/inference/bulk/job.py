"""A bulk job: the rows of an input to the rows of an output file, shard by shard; can be killed and continued.

The input is read twice: first to check, count and hash its rows (`scan_rows`), then to compute (`run_job`). An input
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
from itertools import islice
from pathlib import Path
from typing import IO, Any, Generic, Literal, TypeVar

import torch

from regard.data.files import is_rereadable
from regard.errors import InputError
from regard.events import Event, Note, Progress
from regard.files import storage
from regard.files.output_file import replace_output
from regard.inference.bulk.outputs import expect_rows
from regard.inference.bulk.parts import PartFolder, PartTask, WritePart, is_part_folder, open_part_folder
from regard.inference.bulk.ray_engine import RayCluster, compute_on_ray
from regard.inference.bulk.shards import (
    Block,
    Manifest,
    OpenShard,
    Reader,
    ShardFolder,
    locked_shard_folder,
    read_finished,
)
from regard.inference.bulk.workers import IN_FLIGHT, Compute, ShardTask, compute_in_workers
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

    totals: dict[str, int]
    resumed: int
    seconds: float
    already_done: bool = False


def run_job(
    inputs: InputRows[R],
    target: Path,
    record: Manifest,
    compute: Callable[[Iterator[R]], Iterator[Block | int]],
    write: Callable[[Path, Reader], None],
    *,
    stage: str,
    unit: str = "texts",
    totals: Sequence[str] = (),
    shard_size: int = SHARD_SIZE,
    restart: bool = False,
    force: bool = False,
    task: ShardTask | None = None,
    devices: Sequence[torch.device] = (),
    cluster: RayCluster | None = None,
) -> Generator[Event, None, JobOutcome]:
    """Compute the shards that are missing, then `write` all of them to the file `target`.

    `compute` yields blocks and, between them, the number of rows that are finished so far. Finished shards are kept in
    `target` + ".partial" until the end: after a crash the same job continues, and a job with another `record` is
    refused unless `restart` discards them. A finished job leaves its record in `target` + ".regard.json" with the sums
    of the columns in `totals`: the same job again finds the target intact and computes nothing. The finished target of
    another job is refused unless `restart`, a target that is not Regard's or was changed unless `force`.

    With several `devices` there is a process for each that computes whole shards; `task` is what `compute` does, for
    another process. A job with few shards uses fewer of them, or none. With a `cluster` its workers compute all shards.
    """
    _check_cluster(cluster, task)
    with locked_shard_folder(partial_folder(target), record, restart=restart) as shards:
        started = time.perf_counter()
        finished = None
        try:
            finished = read_finished(target, record, totals, restart=restart)
        except InputError:
            if not force:
                raise
        if finished is not None and inputs.rereadable:
            shards.clear()
            return JobOutcome(finished, inputs.count, time.perf_counter() - started, already_done=True)
        resumed = yield from _compute_shards(
            inputs, shards, compute, shard_size, stage=stage, unit=unit, task=task, devices=devices, cluster=cluster
        )
        sums = dict.fromkeys(totals, 0)
        for block in shards.blocks(*totals) if totals else ():
            sums = {name: total + int(block[name].sum()) for name, total in sums.items()}
        with replace_output(target, force=force, record={"job": dict(record), "totals": sums}) as temporary:
            write(temporary, shards.blocks)
        shards.clear()
        return JobOutcome(sums, resumed, time.perf_counter() - started)


def run_job_in_parts(
    inputs: InputRows[R],
    folder: str,
    record: Manifest,
    compute: Compute,
    write: WritePart,
    *,
    stage: str,
    unit: str = "texts",
    totals: Sequence[str] = (),
    shard_size: int = SHARD_SIZE,
    restart: bool = False,
    task: ShardTask | None = None,
    devices: Sequence[torch.device] = (),
    cluster: RayCluster | None = None,
) -> Generator[Event, None, JobOutcome]:
    """Compute the shards that are missing, each into a Parquet file of its own in `folder`; otherwise like `run_job`.

    Every process, on every node, that computes a shard writes its part; `write` is pickled, too.
    """
    _check_cluster(cluster, task)
    with open_part_folder(folder, record, restart=restart) as parts:
        started = time.perf_counter()
        count = -(-inputs.count // shard_size)
        finished = None if restart else parts.read_finished(totals, count)
        if finished is not None:
            return JobOutcome(finished, inputs.count, time.perf_counter() - started, already_done=True)
        part_task = PartTask(folder, parts.job, tuple(totals), write, task)
        resumed = yield from _compute_shards(
            inputs,
            parts,
            lambda shards: part_task.compute(compute, shards),
            shard_size,
            whole=True,
            stage=stage,
            unit=unit,
            task=part_task if task is not None else None,
            devices=devices,
            cluster=cluster,
        )
        expect_rows(count, len(parts.finished()), unit="parts")
        sums = {name: sum(int(block[name].sum()) for block in parts.blocks(name)) for name in totals}
        parts.finish(sums)
        return JobOutcome(sums, resumed, time.perf_counter() - started)


def _check_cluster(cluster: RayCluster | None, task: ShardTask | None) -> None:
    if cluster is not None and task is None:
        raise InputError("--engine ray needs a model that is read from a folder; save it, and name the folder")


def spool_folder(output: Path | None) -> Path | None:
    """Where to copy an input that can be read once: beside the output; None is the system's temporary folder."""
    return None if output is None or is_part_folder(output) else output.parent


def partial_folder(output: Path) -> Path:
    """Where the finished shards of an output are kept until it is written."""
    return output.with_name(output.name + ".partial")


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


def _compute_shards(
    inputs: InputRows[R],
    shards: ShardFolder | PartFolder,
    compute: Compute,
    size: int,
    *,
    whole: bool = False,
    stage: str,
    unit: str,
    task: ShardTask | None,
    devices: Sequence[torch.device],
    cluster: RayCluster | None,
) -> Generator[Event, None, int]:
    """Compute the shards that are missing or damaged; returns the number of rows that were finished before.

    `whole`: `compute` and `task` take a numbered shard as one row.
    """
    sizes = {number: min(size, inputs.count - number * size) for number in range(-(-inputs.count // size))}
    damage: list[str] = []
    shards.remove_damaged(sizes, damage.append)
    yield from (DamageNote(message=problem) for problem in damage)
    present = set(shards.finished())
    resumed = sum(rows for number, rows in sizes.items() if number in present)
    if resumed:
        yield Note(message=f"continuing behind {resumed:,} of {inputs.count:,} {unit}")
    if not inputs.rereadable:
        yield Note(message=f"{inputs.name} is read once: if this run is interrupted, it cannot be continued")
    total = inputs.count - resumed
    missing = {number: rows for number, rows in sizes.items() if number not in present}
    # A worker that would have no second shard to compute is not worth its start.
    devices = devices[: len(missing) // IN_FLIGHT] if task is not None and os.name == "posix" else ()
    remedy = "the same command continues" if inputs.rereadable else "run the command again"
    rows: Iterator[tuple[int, Iterator[Any]]] = _missing_shards(inputs, sizes, present)
    if whole:
        rows = ((number, iter([(number, list(shard))])) for number, shard in rows)
    if cluster is not None and task is not None and missing:
        where = "started on this machine" if cluster.address is None else f"at {cluster.address}"
        yield Note(message=f"computing {count_of(len(missing), 'shard')} on Ray, {where}")
        steps = _write_arriving(shards, missing, compute_on_ray(task, cluster, rows, count=len(missing), remedy=remedy))
    elif task is not None and len(devices) > 1:
        yield Note(message=f"computing in {len(devices)} processes, on {', '.join(map(str, devices))}")
        steps = _write_arriving(shards, missing, compute_in_workers(task, devices, rows, remedy=remedy))
    else:
        steps = _write_in_order(shards, missing, rows, compute)
    yield BulkProgress(stage=stage, unit=unit, done=0, total=total, resumed=resumed)
    try:
        with closing(steps):
            for done in steps:
                yield BulkProgress(stage=stage, unit=unit, done=done, total=total, resumed=resumed)
    except InputChanged:
        shards.clear()
        raise
    return resumed


def _missing_shards(
    inputs: InputRows[R], sizes: Mapping[int, int], present: Collection[int]
) -> Iterator[tuple[int, Iterator[R]]]:
    """The shards to compute with their rows, which must be read before the next shard."""
    rows = iter(inputs)
    for number, size in sizes.items():
        shard = islice(rows, size)
        if number in present:
            deque(shard, maxlen=0)
        else:
            yield number, shard
    next(rows, None)  # after the last row, a changed input is noticed


def _write_in_order(
    shards: ShardFolder | PartFolder,
    sizes: Mapping[int, int],
    missing: Iterable[tuple[int, Iterator[Any]]],
    compute: Compute,
) -> Generator[int, None, None]:
    """Compute and write one shard after the other; yields the number of rows that are finished so far."""
    done = 0
    for number, rows in missing:
        for count in shards.write(number, compute(rows)):
            yield done + count
        done += sizes[number]


def _write_arriving(
    shards: ShardFolder | PartFolder,
    sizes: Mapping[int, int],
    computed: Generator[tuple[int, Block | int | None], None, None],
) -> Generator[int, None, None]:
    """Write shards whose blocks arrive in turns; yields the number of rows that are finished so far."""
    done = 0
    counts: dict[int, int] = {}  # of the shards that are being computed
    unfinished: dict[int, OpenShard] = {}
    try:
        with closing(computed):
            for number, item in computed:
                if number not in unfinished:
                    unfinished[number] = OpenShard(shards.write, number)
                shard = unfinished[number]
                if isinstance(item, dict):
                    shard.add(item)
                    continue
                if item is None:
                    shard.finish()
                    del unfinished[number]
                    counts.pop(number, None)
                    done += sizes[number]
                else:
                    counts[number] = item
                yield done + sum(counts.values())
    finally:
        for shard in unfinished.values():
            shard.close()
