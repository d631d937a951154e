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
import re
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from regard.errors import InputError, RegardError
from regard.files import storage
from regard.files.json_files import json_bytes, read_checked_json, with_checksum
from regard.files.output_folder import LOCK, lock_folder
from regard.inference.bulk.outputs import import_pyarrow
from regard.inference.bulk.shards import Block, Manifest, Reader, differences
from regard.inference.bulk.workers import Compute, ShardTask

RECORD = "_regard.json"
PART = re.compile(r"part-(\d{6,})\.parquet")
JOB, TOTALS = b"regard.job", b"regard.totals"  # in the metadata of a part
REQUESTS = 16  # to an object store at a time
T = TypeVar("T")


class WritePart(Protocol):
    """Writes the blocks of one shard to a Parquet file. It is pickled."""

    def __call__(self, path: Path, blocks: Reader, rows: int, metadata: Mapping[bytes, bytes], /) -> None: ...


def is_part_folder(output: str | os.PathLike[str]) -> bool:
    """Whether an output is a folder of parts: it is on an object store, or its name has no suffix."""
    return storage.is_remote(output) or not Path(output).suffix


def check_folder(output: str | os.PathLike[str]) -> None:
    """Refuse a folder that could not be written, before anything else is done."""
    import_pyarrow()
    if storage.is_remote(output):
        storage.exists(output)  # says which bucket or key is wrong
        return
    path = storage.local_path(output)
    if path.is_symlink():
        raise InputError(f"{path} is a symbolic link, which is not followed; name its target, or remove the link")
    if path.exists() and not path.is_dir():
        raise InputError(
            f"{path}: is a file, expected a folder for Parquet parts; move it, or choose a name with a suffix"
        )
    if not path.parent.is_dir():
        raise InputError(f"{path}: cannot be written: there is no folder {path.parent}; create it first")
    if not os.access(path if path.is_dir() else path.parent, os.W_OK):
        raise InputError(f"{path}: cannot be written: you may not write there; choose another folder")


@dataclass(frozen=True)
class PartTask:
    """Computes numbered shards and writes the part of each; yields the number of rows so far, and a block of totals.

    The rows of this task are whole shards: pairs of a number and the shard's rows. `job` is the hash of the job's
    record, `totals` are columns of the blocks that are added up. `task` is None in a process that has its own model.
    """

    folder: str
    job: str
    totals: tuple[str, ...]
    write: WritePart
    task: ShardTask | None = None

    def load(self, device: torch.device) -> Compute:
        assert self.task is not None
        compute = self.task.load(device)
        return lambda shards: self.compute(compute, shards)

    def compute(self, compute: Compute, shards: Iterable[tuple[int, Sequence[Any]]]) -> Iterator[Block | int]:
        for number, rows in shards:
            blocks: list[Block] = []
            for item in compute(iter(rows)):
                if isinstance(item, int):
                    yield item
                else:
                    blocks.append(item)
            sums = {name: sum(int(block[name].sum()) for block in blocks) for name in self.totals}
            metadata = {JOB: self.job.encode(), TOTALS: json.dumps(sums).encode()}
            with storage.replace_object(part_address(self.folder, number)) as path:
                self.write(path, _reader(blocks), len(rows), metadata)
            yield {name: np.array([total]) for name, total in sums.items()}


def _reader(blocks: Sequence[Block]) -> Reader:
    return lambda *columns: ({name: block[name] for name in columns} for block in blocks)


def part_address(folder: str, number: int) -> str:
    return storage.join(folder, f"part-{number:06d}.parquet")


def job_hash(record: Manifest) -> str:
    return hashlib.sha256(json_bytes(dict(record))).hexdigest()


class PartFolder:
    """The parts of one job in their folder; made by `open_part_folder`."""

    def __init__(self, folder: str, record: Manifest) -> None:
        self.folder, self._record, self.job = folder, record, job_hash(record)
        self._totals: dict[int, Block] = {}  # of the finished parts

    def finished(self) -> list[int]:
        """The numbers of the finished parts."""
        return sorted(self._totals)

    def remove_damaged(self, sizes: Mapping[int, int], on_damaged: Callable[[str], None]) -> None:
        """Find the finished parts; delete those that are damaged or of another job, and report each."""
        present = [number for number, _ in self._list()]
        for number, found in zip(present, self._each(self._read, present, sizes), strict=True):
            if isinstance(found, dict):
                self._totals[number] = found
            else:
                on_damaged(found)
                _remove(part_address(self.folder, number))

    def write(self, number: int, items: Iterable[Block | T]) -> Generator[T, None, None]:
        """Note that a part has been written; items that are not blocks are yielded to the caller."""
        for item in items:
            if isinstance(item, dict):
                self._totals[number] = item
            else:
                yield item

    def blocks(self, *columns: str) -> Iterator[Block]:
        """The totals of every part."""
        return ({name: self._totals[number][name] for name in columns} for number in self.finished())

    def clear(self) -> None:
        """Delete the parts and, last, the record."""
        for number, _ in self._list():
            _remove(part_address(self.folder, number))
        self._totals.clear()
        _remove(storage.join(self.folder, RECORD))

    def begin(self, *, restart: bool) -> None:
        """Continue unfinished work with the same record; never mix it with other work."""
        record = self._read_record()
        if record is None and (names := self._names()):
            raise InputError(
                f"{self.folder} is not empty: it holds {names[0]!r}, which Regard did not write; choose a new or an "
                "empty folder"
            )
        remedy = "Choose another output, or discard that work: --restart"
        if record is not None and not restart:
            old = record.get("job")
            if changes := differences(old if isinstance(old, dict) else {}, self._record):
                raise InputError(f"{self.folder} holds the work of another job: {'; '.join(changes)}. {remedy}")
        elif record is not None:
            self.clear()
        if record is None or restart:
            self._write_record({})

    def finish(self, totals: Mapping[str, int]) -> None:
        """Record that all parts are there, with their sizes."""
        self._write_record({"totals": dict(totals), "parts": self._sizes()})

    def read_finished(self, totals: Sequence[str], count: int) -> dict[str, int] | None:
        """The totals of a finished run, if all of its parts are there with the sizes that it recorded."""
        record = self._read_record() or {}
        found = record.get("totals")
        if not isinstance(found, dict) or record.get("parts") != self._sizes() or len(self._list()) != count:
            return None
        return {name: int(found.get(name, 0)) for name in totals}

    def _sizes(self) -> str:
        """A hash of the names and the sizes of the parts."""
        found = self._list()
        sizes = self._each(lambda address: storage.file_identity(address).size, [address for _, address in found])
        lines = "".join(f"{number}:{size}\n" for (number, _), size in zip(found, sizes, strict=True))
        return hashlib.sha256(lines.encode()).hexdigest()

    def _read(self, number: int, sizes: Mapping[int, int]) -> Block | str:
        """The totals of a part, or what is wrong with it. On a disk its rows are read, too, to compare checksums."""
        address = part_address(self.folder, number)
        pyarrow, parquet = import_pyarrow()
        try:
            with storage.open_input(address) as file:
                part = parquet.ParquetFile(file, page_checksum_verification=True)
                metadata = part.schema_arrow.metadata or {}
                if metadata.get(JOB) != self.job.encode() or part.metadata.num_rows != sizes.get(number):
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
        with ThreadPoolExecutor(REQUESTS if storage.is_remote(self.folder) else 1) as threads:
            return list(threads.map(lambda item: function(item, *arguments), items))

    def _names(self) -> list[str]:
        if not storage.exists(self.folder):
            return []
        if not storage.is_remote(self.folder):
            return sorted(name for name in os.listdir(self.folder) if not name.startswith("."))
        return [address.rpartition("/")[2] for address in storage.list_files(self.folder, missing_ok=True)]

    def _list(self) -> list[tuple[int, str]]:
        """The numbers and addresses of the parts that are there."""
        matches = filter(None, map(PART.fullmatch, self._names()))
        return sorted((int(match[1]), storage.join(self.folder, match[0])) for match in matches)

    def _read_record(self) -> dict[str, object] | None:
        address = storage.join(self.folder, RECORD)
        if not storage.exists(address):
            return None
        try:
            if not storage.is_remote(address):
                return read_checked_json(address)
            with tempfile.TemporaryDirectory() as folder:
                storage.fetch(address, path := Path(folder, RECORD))
                return read_checked_json(path)
        except InputError as error:
            raise InputError(f"{self.folder} holds unfinished work, but {error}; choose another output") from None

    def _write_record(self, outcome: Mapping[str, object]) -> None:
        document = with_checksum({"job": dict(self._record), **outcome})
        storage.write_bytes(storage.join(self.folder, RECORD), json_bytes(document))


@contextmanager
def open_part_folder(folder: str, record: Manifest, *, restart: bool = False) -> Iterator[PartFolder]:
    """The folder while the work lasts, with the parts of an earlier run that has the same record.

    A local folder is locked. An object store has no locks; two commands with the same job there compute parts twice,
    but write the same ones.
    """
    if not record["continuable"]:
        raise InputError("a folder of parts needs an input that can be read again: use a file, not standard input")
    parts = PartFolder(folder, record)
    if storage.is_remote(folder):
        parts.begin(restart=restart)
        yield parts
        return
    path = Path(folder)
    beside = path.with_name(f"{path.name}.partial")  # a lock inside would be taken for a part
    try:
        with lock_folder(beside):
            path.mkdir(exist_ok=True)
            parts.begin(restart=restart)
            yield parts
    finally:
        with suppress(OSError):
            (beside / LOCK).unlink(missing_ok=True)
            beside.rmdir()


def _remove(address: str) -> None:
    if storage.is_remote(address):
        storage.remove(address)
        return
    try:
        Path(address).unlink(missing_ok=True)
    except OSError as error:
        raise RegardError(f"{address} cannot be deleted ({error.strerror or error}); delete it") from error
