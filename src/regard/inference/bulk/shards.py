"""Unfinished bulk jobs on disk: the folder OUT.partial with its record, its lock and its finished shards.

A shard is an .npz file of blocks; a block is a few thousand rows as named arrays. Shards are written and read one
member at a time and never held in memory as a whole. A shard is complete or absent, so work can continue after a kill.

Every block has `lines` (n), the line or number of each row; the job decides about its other arrays.

A record names the input, the files of the model and the settings that unfinished or finished work belongs to. A
finished run leaves it in OUT.regard.json together with the checksum of its output.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError, RegardError
from regard.files.checksums import CHECKSUMS, sha256_of_all
from regard.files.durable_folder import DurableFolder, describe_changes
from regard.files.json_files import json_bytes, read_json
from regard.files.output_file import read_record, replace_output
from regard.files.storage import Address, replace_object

Manifest = Mapping[str, object]
FORMAT = 1  # of what the hashes are made
PARTS = {"format": "Regard's version", "input": "the input", "model": "the model's files"}
Column = NDArray[Any]
Block = dict[str, Column]
Reader = Callable[..., Iterator[Block]]  # of the columns that are wanted
HASHED = (".json", ".txt", ".safetensors", ".bin")
AGAIN = "delete this file and run the same command again"
# What reading a damaged archive can raise.
DAMAGE = (OSError, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile)


def manifest(*, digest: str, model: LoadedModel, continuable: bool, settings: Mapping[str, object]) -> Manifest:
    """The record of a job. A model is identified by its files, or by its weights if the files differ or are gone."""
    if model.folder is not None and is_identified_by_files(model):
        identity = fingerprint(model.folder, verified=True)
    else:
        identity = weights_digest(model)
    record = {
        "format": FORMAT,
        "continuable": continuable,
        "input": digest,
        "model": identity,
        "settings": dict(settings),
    }
    return dict(json.loads(json_bytes(record)))  # as it comes back from a file: without tuples


def is_identified_by_files(model: LoadedModel) -> bool:
    """Whether the files of a model are there and hold its weights."""
    return model.folder is not None and not model.changeable and model.folder.is_dir()


def differences(old: Manifest, new: Manifest) -> list[str]:
    """How an old record differs from a new one, in words; empty if the work can be continued."""
    changed = [f"{words} changed" for key, words in PARTS.items() if old.get(key) != new[key]]
    before, now = old.get("settings"), new["settings"]
    assert isinstance(now, dict)
    if not isinstance(before, dict):
        return changed or ["the record is damaged"]
    return changed + describe_changes(before, now)


def fingerprint(folder: Path, *, verified: bool = False) -> str:
    """A hash of the contents of a model folder: different models have different fingerprints.

    `verified`: loading the model has just compared its files with checksums.json, so these are not hashed again.
    """
    names = [*folder.iterdir(), *folder.glob("[0-9]*_*/*")]  # with the modules of sentence-transformers
    paths = [path for path in sorted(names) if path.suffix in HASHED and path.is_file()]
    listed = read_json(folder / CHECKSUMS) if verified and (folder / CHECKSUMS).is_file() else {}
    known = {folder / name: str(value).removeprefix("sha256:") for name, value in listed.items()}
    unknown = [path for path in paths if path not in known]
    hashes = known | dict(zip(unknown, sha256_of_all(unknown), strict=True))
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(folder).as_posix()}:{hashes[path]}\n".encode())
    return digest.hexdigest()


def weights_digest(loaded: LoadedModel) -> str:
    """A hash of the weights and of the tokenizer: models with the same vectors have the same."""
    digest = hashlib.sha256()
    module = loaded.model if loaded.fine_tuned is None else loaded.fine_tuned.model  # the latter has its head, too
    for name, tensor in module.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    for name, content in sorted(loaded.tokenizer.files().items() if loaded.tokenizer is not None else ()):
        digest.update(name.encode() + content)
    return digest.hexdigest()


def write_blocks(address: Address) -> Generator[None, Block | None, None]:
    """Write the blocks that are sent to it as a shard, which appears when None is sent; closing it discards the shard.

    Several shards can so be written at a time.
    """
    with replace_object(address) as path, zipfile.ZipFile(path, "w") as archive:
        for number in count():
            if (block := (yield)) is None:
                return
            for name, column in block.items():
                with archive.open(f"{number}.{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, column, allow_pickle=False)


def check_blocks(path: Path, rows: int) -> None:
    """RegardError unless a shard is intact: every array has a checksum, and there must be `rows` rows."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except DAMAGE as error:
        raise RegardError(f"{path} is damaged ({error}); {AGAIN}") from error
    if damaged is not None:
        raise RegardError(f"{path} is damaged (the checksum of {damaged} differs); {AGAIN}")
    count = sum(len(block["lines"]) for block in read_blocks(path, "lines"))
    if count != rows:
        raise RegardError(f"{path} is damaged: it holds {count:,} rows, expected {rows:,}; {AGAIN}")


def read_blocks(path: Path, *columns: str) -> Iterator[Block]:
    """The blocks of a shard, with the given columns only."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            number = 0
            while f"{number}.lines" in archive:
                yield {name: archive[f"{number}.{name}"] for name in columns}
                number += 1
    except DAMAGE as error:
        raise RegardError(f"{path} is damaged ({error}); {AGAIN}") from error


def pack_json(value: object) -> Column:
    """A JSON value as an array of bytes; numpy's string arrays need the size of the longest string for each."""
    return np.frombuffer(json.dumps(value).encode("ascii"), dtype=np.uint8)


def unpack_json(column: Column) -> Any:
    return json.loads(column.tobytes())


class WriteRows(Protocol):
    """Writes the blocks of all rows, or of one shard, to a file. Parquet files have `metadata`. It is pickled."""

    def __call__(
        self, path: Path, blocks: Reader, rows: int, metadata: Mapping[bytes, bytes] | None = None, /
    ) -> None: ...


class FinishedShards:
    """The finished shards of a job in a folder; `job` is its record."""

    def __init__(self, durable: DurableFolder, job: Manifest) -> None:
        self.durable, self.job = durable, job

    @contextmanager
    def locked(self, *, restart: bool = False) -> Iterator[Self]:
        """Hold the folder while the work lasts, with the shards of an earlier run that has the same record.

        It remains only if it holds something to continue with. A local folder is locked. An object store has no locks;
        two commands with the same job there compute shards twice, but write the same ones.
        """
        with self.durable.locked():
            self.durable.begin(self.job, restart=restart, differences=differences)
            try:
                yield self
            finally:
                self.discard_unfinished()

    def discard_unfinished(self) -> None:
        """Stop writing the shards that are not finished."""

    def clear(self) -> None:
        """Delete the shards and, last, the record."""
        self.discard_unfinished()
        self.durable.clear()


class ShardFolder(FinishedShards):
    """The finished shards of an output file, in OUT.partial."""

    def __init__(self, output: Path, job: Manifest) -> None:
        super().__init__(DurableFolder(partial_folder(output), kind="unfinished bulk job", part="#.npz"), job)
        self.output = output
        self._unfinished: dict[int, Generator[None, Block | None, None]] = {}

    def finished(self) -> list[int]:
        """The numbers of the finished shards."""
        return self.durable.parts()

    def add(self, number: int, block: Block) -> None:
        """Append a block to a shard."""
        if number not in self._unfinished:
            self._unfinished[number] = write_blocks(self.durable.part(number))
            next(self._unfinished[number])
        self._unfinished[number].send(block)

    def finish(self, number: int) -> None:
        """Let a shard appear, of which all blocks were added."""
        with suppress(StopIteration):
            self._unfinished.pop(number).send(None)

    def discard_unfinished(self) -> None:
        while self._unfinished:
            self._unfinished.popitem()[1].close()

    def blocks(self, *columns: str) -> Iterator[Block]:
        """All blocks in the order of the input, with the given columns only."""
        for number in self.finished():
            yield from read_blocks(Path(self.durable.part(number)), *columns)

    def remove_damaged(self, sizes: Mapping[int, int], on_damaged: Callable[[str], None]) -> None:
        """Delete damaged shards and report each; `sizes` maps shard numbers to their rows."""
        for number in self.finished():
            try:
                check_blocks(Path(self.durable.part(number)), sizes.get(number, 0))
            except RegardError as error:
                on_damaged(str(error))
                self.durable.remove_part(number)

    def read_output(
        self, totals: Sequence[str], num_shards: int, *, restart: bool = False, force: bool = False
    ) -> dict[str, int] | None:
        """The totals of this job, if the output holds its rows; None if it has to be computed.

        Raises InputError for an output that was changed since it was written, unless `force`, and of another job,
        unless `force` or `restart`.
        """
        if not self.output.is_file():
            return None
        try:
            record = read_record(self.output)
            if restart or not record:
                return None
            recorded, found = record.get("job"), record.get("totals")
            if changes := differences(recorded if isinstance(recorded, dict) else {}, self.job):
                raise InputError(
                    f"{self.output} holds the finished work of another job: {'; '.join(changes)}. Choose another "
                    "output, or replace it: --restart"
                )
        except InputError:
            if force:
                return None
            raise
        finished = {name: int(found.get(name, 0)) for name in totals} if isinstance(found, dict) else None
        if finished is not None and self.job["continuable"]:
            self.clear()
            return finished
        return None

    def write_output(self, write: WriteRows, rows: int, totals: Mapping[str, int], *, force: bool = False) -> None:
        """Write the shards to the output, and delete them."""
        record = {"job": dict(self.job), "totals": totals}
        with replace_output(self.output, force=force, record=record) as temporary:
            write(temporary, self.blocks, rows)
        self.clear()


def partial_folder(output: Path) -> Path:
    """Where the finished shards of an output are kept until it is written."""
    return output.with_name(output.name + ".partial")
