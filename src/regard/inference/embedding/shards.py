"""Unfinished work on the disk: the folder OUT.partial with its record, its finished shards and its lock.

Knows names and renames; `unfinished` knows the lock. A shard is whole or not there, so what a killed process
leaves can be continued.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.errors import InputError, RegardError
from regard.files.disk import atomic_write, replace_file
from regard.files.folder_lock import LOCK, lock_folder
from regard.files.json_files import json_bytes, read_checked_json, with_checksum
from regard.files.output_folder import foreign_entries
from regard.inference.embedding.blocks import Block, check_blocks, read_blocks, write_blocks
from regard.inference.embedding.manifest import Manifest, differences

__all__ = ["ShardFolder", "locked_shard_folder"]

RECORD = "manifest.json"
SHARD = re.compile(r"(\d{6,})\.npz")
OURS = re.compile(rf"{RECORD}|{LOCK}|{SHARD.pattern}|\..+\.partial(\.\w+)?")  # the last: left by a killed process


class ShardFolder:
    """A folder of finished shards that this process holds; made by `hold`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def finished(self) -> list[int]:
        """The numbers of the shards that are there."""
        return sorted(int(match[1]) for name in os.listdir(self.folder) if (match := SHARD.fullmatch(name)))

    def write(self, number: int, blocks: Iterable[Block]) -> None:
        """Put a shard in its place once it is whole."""
        with replace_file(self._shard(number)) as temporary:
            write_blocks(temporary, blocks)

    def blocks(self, *columns: str) -> Iterator[Block]:
        """All blocks in the order of the input, with the columns that are asked for."""
        for number in self.finished():
            yield from read_blocks(self._shard(number), *columns)

    def remove_damaged(self, sizes: Mapping[int, int], on_damaged: Callable[[str], None]) -> None:
        """Delete the shards that are not whole, each described to `on_damaged`; `sizes` are the rows of all shards."""
        for number in self.finished():
            try:
                check_blocks(self._shard(number), sizes.get(number, 0))
            except RegardError as error:
                on_damaged(str(error))
                self._shard(number).unlink(missing_ok=True)

    def clear(self) -> None:
        """Throw the shards away, and last the record, by which they are known to be Regard's; the lock stays."""
        for name in sorted(os.listdir(self.folder), key=RECORD.__eq__):
            if name != LOCK and OURS.fullmatch(name):
                (self.folder / name).unlink(missing_ok=True)

    def begin(self, record: Manifest, *, restart: bool) -> None:
        """Go on with the work that lies here if it is of the same record; never mix it with another's."""
        path = self.folder / RECORD
        if restart or not path.exists():
            self.clear()
        else:
            self._compare(path, record)
        atomic_write(path, json_bytes(with_checksum(record)))

    def _compare(self, path: Path, record: Manifest) -> None:
        remedy = "Use another output, or throw that work away: --restart, or delete the folder"
        try:
            old = read_checked_json(path)
        except InputError as error:
            raise InputError(f"{self.folder} holds unfinished work, but {error}. {remedy}") from None
        if not old.get("continuable"):
            self.clear()
        elif found := differences(old, record):
            raise InputError(f"{self.folder} holds unfinished work of another job: {'; '.join(found)}. {remedy}")

    def _shard(self, number: int) -> Path:
        return self.folder / f"{number:06d}.npz"


@contextmanager
def locked_shard_folder(folder: Path, record: Manifest, *, restart: bool = False) -> Iterator[ShardFolder]:
    """The folder for as long as the work lasts, with what an earlier run of the same record left in it.

    It stays behind only if there is something in it to go on with.
    """
    # The record is the first file of the folder, so that what lies in one without a record is not Regard's.
    present = foreign_entries(folder)
    strange = [name for name in present if RECORD not in present or not OURS.fullmatch(name)]
    if strange:
        raise InputError(f"{folder} is in the way: it holds {strange[0]!r}; move it, or use another output")
    _refuse_foreign_record(folder / RECORD)
    with lock_folder(folder):
        partial = ShardFolder(folder)
        partial.begin(record, restart=restart)
        try:
            yield partial
        finally:
            if not record["continuable"] or not partial.finished():
                partial.clear()
                (folder / LOCK).unlink(missing_ok=True)
                with suppress(OSError):  # something was put there meanwhile, and is not ours to remove
                    folder.rmdir()


def _refuse_foreign_record(path: Path) -> None:
    """InputError for a manifest.json of something else; one that cannot be read is reported later."""
    try:
        found = read_checked_json(path)
    except InputError:
        return
    if type(found.get("continuable")) is not bool:
        raise InputError(
            f"{path.parent} is in the way: Regard did not write its {path.name}; move it, or use another output"
        )
