"""An output that is a folder of Parquet files, one part for each shard, on a disk or an object store.

    vectors/_regard.json            the record of the job; readers of Parquet folders ignore names with an underscore
    vectors/part-000000.parquet     the rows of shard 0, and so on

Whoever computes a shard writes its part, so that a cluster's results do not pass through the process that started the
job. A part is complete or absent, and names the job and the shard that it belongs to: after a crash the same job finds
out from the parts alone what is missing. There is no copy of the results and no merging at the end.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import torch

from regard.errors import InputError, RegardError, suggest
from regard.files import storage
from regard.files.durable_folder import DurableFolder
from regard.files.json_files import json_bytes
from regard.files.output_file import check_output_file, refuse_link
from regard.inference.bulk.shards import Block, Column, FinishedShards, Manifest, Reader, WriteRows
from regard.inference.bulk.workers import Compute, ShardTask

JOB, TOTALS = b"regard.job", b"regard.totals"  # in the metadata of a part
REQUESTS = 16  # to an object store at a time
T = TypeVar("T")


def is_part_folder(output: str | os.PathLike[str]) -> bool:
    """Whether an output is a folder of parts: it is on an object store, or its name has no suffix."""
    return storage.is_remote(output) or not Path(output).suffix


def check_output(output: Path, suffixes: Collection[str], *, force: bool = False) -> None:
    """Refuse an output that could not be written, before anything else is done."""
    in_parts = is_part_folder(output)
    if in_parts or output.suffix == ".parquet":
        import_pyarrow()
    if storage.is_remote(output):
        storage.exists(output)  # says which bucket or key is wrong
        return
    path = storage.local_path(output)
    if not in_parts and path.suffix not in suffixes:
        raise InputError(
            f"{path}: the name of the output says its format, and {path.suffix!r} is none; "
            f"{suggest(path.suffix, suffixes)}"
        )
    if in_parts:
        refuse_link(path)
    if in_parts and path.exists() and not path.is_dir():
        raise InputError(
            f"{path}: is a file, expected a folder for Parquet parts; move it, or choose a name with a suffix"
        )
    if not path.parent.is_dir():
        raise InputError(f"{path}: cannot be written: there is no folder {path.parent}; create it first")
    if not in_parts:
        check_output_file(path, force=force)
    writable = path if in_parts and path.is_dir() else path.parent
    if not os.access(writable, os.W_OK):
        raise InputError(f"{path}: cannot be written: you may not write in {writable}; choose another folder")


def expect_rows(expected: int, count: int) -> None:
    """Raise RegardError if the shards do not hold all rows."""
    if count != expected:
        raise RegardError(
            f"the finished shards hold {count} rows where {expected} were expected; start anew with --restart"
        )


def import_pyarrow() -> tuple[Any, Any]:
    """pyarrow and its module for Parquet."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            "Parquet needs pyarrow, which is not installed: pip install 'regard[data]', or choose another format"
        ) from error
    return pyarrow, pyarrow.parquet


@dataclass(frozen=True)
class PartTask:
    """Computes numbered shards and writes the part of each; yields the number of rows so far, and a block of totals.

    The rows of this task are whole shards: pairs of a number and the shard's rows. `job` is the hash of the job's
    record, `totals` are columns of the blocks that are added up. `task` is None in a process that has its own model.
    """

    folder: str
    job: str
    totals: tuple[str, ...]
    write: WriteRows
    task: ShardTask | None = None

    def __call__(self, device: torch.device) -> Compute:
        assert self.task is not None
        return self.writing(self.task(device))

    def writing(self, compute: Compute) -> Compute:
        """A function that also writes the part of each shard whose rows are computed."""

        def compute_parts(shards: Iterator[tuple[int, Sequence[Any]]]) -> Iterator[Block | int]:
            for number, rows in shards:
                blocks: list[Block] = []
                for item in compute(iter(rows)):
                    if isinstance(item, int):
                        yield item
                    else:
                        blocks.append(item)
                sums = {name: sum(int(block[name].sum()) for block in blocks) for name in self.totals}
                metadata = {JOB: self.job.encode(), TOTALS: json.dumps(sums).encode()}
                with storage.replace_object(_durable(self.folder).part(number)) as path:
                    self.write(path, _reader(blocks), len(rows), metadata)
                yield {name: np.array([total]) for name, total in sums.items()}

        return compute_parts


def _reader(blocks: Sequence[Block]) -> Reader:
    return lambda *columns: ({name: block[name] for name in columns} for block in blocks)


def _durable(folder: str) -> DurableFolder:
    return DurableFolder(folder, kind="bulk job", part="part-#.parquet", published=True)


class PartFolder(FinishedShards):
    """The parts of a job in their folder. Whoever computes a part writes it; this object has the totals of each."""

    def __init__(self, folder: str, job: Manifest) -> None:
        if not job["continuable"]:
            raise InputError("a folder of parts needs an input that can be read again: use a file, not standard input")
        super().__init__(_durable(folder), job)
        self.output, self.job_hash = folder, hashlib.sha256(json_bytes(dict(job))).hexdigest()
        self._totals: dict[int, Block] = {}  # of the finished parts

    def finished(self) -> list[int]:
        """The numbers of the finished parts."""
        return sorted(self._totals)

    def add(self, number: int, block: Block) -> None:
        """Note the totals of a part that has been written."""
        self._totals[number] = block

    def finish(self, number: int) -> None:
        """Do nothing: a part appears when it is written."""

    def blocks(self, *columns: str) -> Iterator[Block]:
        """The totals of every part."""
        return ({name: self._totals[number][name] for name in columns} for number in self.finished())

    def remove_damaged(self, sizes: Mapping[int, int], on_damaged: Callable[[str], None]) -> None:
        """Find the finished parts; delete those that are damaged or of another job, and report each."""
        present = self.durable.parts()
        for number, found in zip(present, self._each(self._read, present, sizes), strict=True):
            if isinstance(found, dict):
                self._totals[number] = found
            else:
                on_damaged(found)
                self.durable.remove_part(number)

    def clear(self) -> None:
        self._totals.clear()
        super().clear()

    def read_output(
        self, totals: Sequence[str], num_shards: int, *, restart: bool = False, force: bool = False
    ) -> dict[str, int] | None:
        """The totals of a finished run, if all of its parts are there with the sizes that it recorded."""
        outcome = self.durable.record.outcome
        if restart or outcome.get("parts") != self._sizes() or len(self.durable.parts()) != num_shards:
            return None
        return {name: int(outcome["totals"].get(name, 0)) for name in totals}

    def write_output(self, write: WriteRows, rows: int, totals: Mapping[str, int], *, force: bool = False) -> None:
        """Record that all parts are there, with their sizes."""
        self.durable.finish({"totals": dict(totals), "parts": self._sizes()})

    def _sizes(self) -> str:
        """A hash of the names and the sizes of the parts."""
        found = self.durable.parts()
        sizes = self._each(lambda number: storage.file_identity(self.durable.part(number)).size, found)
        lines = "".join(f"{number}:{size}\n" for number, size in zip(found, sizes, strict=True))
        return hashlib.sha256(lines.encode()).hexdigest()

    def _read(self, number: int, sizes: Mapping[int, int]) -> Block | str:
        """The totals of a part, or what is wrong with it. On a disk its rows are read, too, to compare checksums."""
        address = self.durable.part(number)
        pyarrow, parquet = import_pyarrow()
        try:
            with storage.open_input(address) as file:
                part = parquet.ParquetFile(file, page_checksum_verification=True)
                metadata = part.schema_arrow.metadata or {}
                if metadata.get(JOB) != self.job_hash.encode() or part.metadata.num_rows != sizes.get(number):
                    return f"{address} is not of this job; it is computed again"
                if not storage.is_remote(address):
                    for _ in part.iter_batches():
                        pass
                totals = json.loads(metadata[TOTALS])
        except (pyarrow.ArrowException, OSError, ValueError, KeyError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            return f"{address} is damaged ({reason}); it is computed again"
        return {name: np.array([total]) for name, total in totals.items()}

    def _each(self, function: Callable[..., T], items: Sequence[Any], *arguments: Any) -> list[T]:
        with ThreadPoolExecutor(REQUESTS if storage.is_remote(self.durable.address) else 1) as threads:
            return list(threads.map(lambda item: function(item, *arguments), items))


def starts_of(lengths: Iterable[Column]) -> Iterator[Column]:
    """Where each row begins, and where the last one ends, of the lengths of the rows in parts."""
    end = 0
    yield np.zeros(1, dtype=np.int64)
    for some in lengths:
        ends = end + np.cumsum(some, dtype=np.int64)
        end = int(ends[-1])
        yield ends


def stream_array(file: IO[bytes], columns: Iterable[Column], kind: str, shape: tuple[int, ...]) -> None:
    """An array in numpy's format whose rows come in parts."""
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    count = 0
    for column in columns:
        count += len(column)
        file.write(np.ascontiguousarray(column, dtype=kind).tobytes())
    expect_rows(shape[0], count)
