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
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError, RegardError
from regard.files.checksums import CHECKSUMS, sha256_of_all
from regard.files.durable_folder import DurableFolder, describe_changes
from regard.files.json_files import json_bytes, read_json
from regard.files.output_file import read_record
from regard.files.storage import replace_object

Manifest = Mapping[str, object]
FORMAT = 3  # of what the hashes are made
PARTS = {"format": "Regard's version", "input": "the input", "model": "the model's files"}
Column = NDArray[Any]
Block = dict[str, Column]
Reader = Callable[..., Iterator[Block]]  # of the columns that are wanted
Event = TypeVar("Event")
Write = Callable[[int, Iterable[Any]], Generator[Any, None, None]]  # a numbered shard, from its blocks
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
    names = [path for path in folder.iterdir() if path.suffix in (".json", ".txt", ".safetensors", ".bin")]
    paths = [path for path in sorted([*names, folder / "1_Pooling" / "config.json"]) if path.is_file()]
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


def read_finished(
    output: Path, job: Manifest, totals: Sequence[str], *, restart: bool = False
) -> dict[str, int] | None:
    """The totals of this job, if `output` holds its rows; None if it has to be computed.

    Raises InputError for an output that was changed since it was written and, unless `restart`, of another job.
    """
    if not output.is_file():
        return None
    record = read_record(output)
    if restart or not record:
        return None
    recorded, found = record.get("job"), record.get("totals")
    if changes := differences(recorded if isinstance(recorded, dict) else {}, job):
        raise InputError(
            f"{output} holds the finished work of another job: {'; '.join(changes)}. Choose another output, or replace "
            "it: --restart"
        )
    return {name: int(found.get(name, 0)) for name in totals} if isinstance(found, dict) else None


def write_blocks(path: Path, items: Iterable[Block | Event]) -> Iterator[Event]:
    """Write a shard, one block at a time. Items that are not blocks are events: they are yielded to the caller."""
    number = 0
    with zipfile.ZipFile(path, "w") as archive:
        for item in items:
            if not isinstance(item, dict):
                yield item
                continue
            for name, column in item.items():
                with archive.open(f"{number}.{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, column, allow_pickle=False)
            number += 1


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


class ShardFolder:
    """A folder of finished shards; `locked_shard_folder` opens it for work."""

    def __init__(self, folder: Path) -> None:
        self.durable = DurableFolder(folder, kind="unfinished bulk job", part="#.npz")

    def finished(self) -> list[int]:
        """The numbers of the finished shards."""
        return self.durable.parts()

    def write(self, number: int, items: Iterable[Block | Event]) -> Generator[Event, None, None]:
        """Write a shard that appears once it is complete; items that are not blocks are yielded to the caller."""
        with replace_object(self.durable.part(number)) as temporary:
            yield from write_blocks(temporary, items)

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

    def clear(self) -> None:
        """Delete the shards and, last, the record."""
        self.durable.clear()


class OpenShard:
    """A shard that gets its blocks one by one, so that several shards can be written at a time.

    It appears in the folder when it is finished; closing it before that discards it.
    """

    def __init__(self, write: Write, number: int) -> None:
        self._blocks: deque[Block] = deque()
        self._finished = False
        self._writing = write(number, self._items())

    def add(self, block: Block) -> None:
        self._blocks.append(block)
        next(self._writing)

    def finish(self) -> None:
        self._finished = True
        next(self._writing, None)

    def close(self) -> None:
        self._writing.close()

    def _items(self) -> Iterator[Block | None]:
        """The blocks; None interrupts the writing until there is another one."""
        while not self._finished:
            yield self._blocks.popleft() if self._blocks else None


@contextmanager
def locked_shard_folder(folder: Path, record: Manifest, *, restart: bool = False) -> Iterator[ShardFolder]:
    """The folder while the work lasts, with the shards of an earlier run that has the same record.

    It remains only if it holds something to continue with.
    """
    shards = ShardFolder(folder)
    with shards.durable.locked():
        shards.durable.begin(record, restart=restart, differences=differences)
        yield shards
