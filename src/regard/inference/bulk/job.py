"""A bulk job: the rows of an input to the rows of an output file, shard by shard; can be killed and continued.

The input is read twice: first to check, count and hash its rows (`scan_rows`), then to compute (`run_job`). An input
that can be read only once is copied to a temporary file. Prints nothing: the functions yield what happens.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Generic, Literal, TypeVar

from regard.errors import InputError
from regard.events import Event, Note, Progress
from regard.inference.bulk.shards import (
    Block,
    Manifest,
    Reader,
    ShardFolder,
    locked_shard_folder,
    read_finished,
    record_path,
    write_finished,
)

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
    write: Callable[[Reader], None],
    *,
    stage: str,
    unit: str = "texts",
    totals: Sequence[str] = (),
    shard_size: int = SHARD_SIZE,
    restart: bool = False,
) -> Generator[Event, None, JobOutcome]:
    """Compute the shards that are missing, then `write` all of them to `target`.

    `compute` yields blocks and, between them, the number of rows that are finished so far. Finished shards are kept in
    `target` + ".partial" until the end: after a crash the same job continues, and a job with another `record` is
    refused unless `restart` discards them. A finished job leaves its record in `target` + ".regard.json" with the sums
    of the columns in `totals`: the same job again finds the target intact and computes nothing.
    """
    with locked_shard_folder(partial_folder(target), record, restart=restart) as shards:
        started = time.perf_counter()
        damage: list[str] = []
        finished = None
        if not restart and inputs.rereadable:
            finished = read_finished(target, record, totals, damage.append)
        yield from (DamageNote(message=problem) for problem in damage)
        if finished is not None:
            shards.clear()
            return JobOutcome(finished, inputs.count, time.perf_counter() - started, already_done=True)
        resumed = yield from _compute_shards(inputs, shards, compute, shard_size, stage=stage, unit=unit)
        sums = dict.fromkeys(totals, 0)
        for block in shards.blocks(*totals) if totals else ():
            sums = {name: total + int(block[name].sum()) for name, total in sums.items()}
        record_path(target).unlink(missing_ok=True)  # it describes the previous output
        write(shards.blocks)
        if inputs.rereadable:
            write_finished(target, record, sums)
        shards.clear()
        return JobOutcome(sums, resumed, time.perf_counter() - started)


def partial_folder(output: Path) -> Path:
    """Where the finished shards of an output are kept until it is written."""
    return output.with_name(output.name + ".partial")


def how_to_continue(output: Path | None, source: object) -> str:
    """What remains of a job that was interrupted, in words. `source`: a path, "-", or rows in memory."""
    if output is not None and (folder := partial_folder(output)).is_dir():
        return f"the finished part is kept in {folder}: the same command continues"
    if isinstance(source, str | Path) and not Path(source).is_file():
        name = "standard input" if str(source) == "-" else source
        return f"{name} cannot be continued: nothing is kept; use a file to be able to"
    return "nothing was finished yet: the same command starts anew"


def _compute_shards(
    inputs: InputRows[R],
    shards: ShardFolder,
    compute: Callable[[Iterator[R]], Iterator[Block | int]],
    size: int,
    *,
    stage: str,
    unit: str,
) -> Generator[Event, None, int]:
    """Compute the shards that are missing or damaged; returns the number of rows that were finished before."""
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
    done, total = 0, inputs.count - resumed
    yield BulkProgress(stage=stage, unit=unit, done=0, total=total, resumed=resumed)
    rows = iter(inputs)
    try:
        for number in sizes:
            shard = islice(rows, size)
            if number in present:
                deque(shard, maxlen=0)
                continue
            for count in shards.write(number, compute(shard)):
                yield BulkProgress(stage=stage, unit=unit, done=done + count, total=total, resumed=resumed)
            done += sizes[number]
        next(rows, None)  # after the last row, a changed input is noticed
    except InputChanged:
        shards.clear()
        raise
    return resumed
