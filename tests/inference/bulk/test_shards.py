"""The folder of unfinished work: what is preserved and what is deleted; see also `tests/test_durable_folders.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.errors import RegardError
from regard.files.durable_folder import FolderRecord
from regard.inference.bulk.shards import Block, ShardFolder


def record(*, continuable: bool = True, **settings: object) -> dict[str, Any]:
    return {"format": 1, "continuable": continuable, "input": "a", "model": "b", "settings": settings}


def blocks(*numbers: int) -> Iterator[Block]:
    for number in numbers:
        yield {"lines": np.array([number]), "vectors": np.full((1, 2), number, dtype=np.float32)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out.npy.partial"


def open_folder(folder: Path, **options: Any) -> AbstractContextManager[ShardFolder]:
    return ShardFolder(folder.with_suffix(""), record(**options)).locked()


def write(partial: ShardFolder, number: int, *numbers: int) -> None:
    for block in blocks(*numbers):
        partial.add(number, block)
    partial.finish(number)


class Stop(BaseException):
    """Stands for a crash of the process."""


def crash_after(folder: Path, *shards: int, **options: Any) -> None:
    with pytest.raises(Stop), open_folder(folder, **options) as partial:
        for shard in shards:
            write(partial, shard, shard)
        raise Stop


def test_shards_survive_and_come_back_in_order(folder: Path) -> None:
    crash_after(folder, 0, 2)
    inode = (folder / "000002.npz").stat().st_ino
    with open_folder(folder) as partial:
        assert partial.finished() == [0, 2]
        write(partial, 1, 10, 11)
        assert [block["lines"][0] for block in partial.blocks("lines")] == [0, 10, 11, 2]
        assert (folder / "000002.npz").stat().st_ino == inode
        partial.clear()
    assert not folder.exists()


def test_a_shard_is_complete_or_missing(folder: Path) -> None:
    with pytest.raises(Stop), open_folder(folder) as partial:
        write(partial, 0, 0)
        partial.add(1, next(blocks(1)))
        assert partial.finished() == [0]
        raise Stop
    assert sorted(os.listdir(folder)) == ["000000.npz", "regard.json"]


def test_no_folder_remains_if_no_shard_was_finished(folder: Path) -> None:
    crash_after(folder)
    assert not folder.exists()


def test_work_that_cannot_be_resumed_is_deleted(folder: Path) -> None:
    crash_after(folder, 0, continuable=False)
    assert not folder.exists()


def test_leftovers_of_a_killed_process_reading_a_pipe_are_deleted(folder: Path) -> None:
    crash_after(folder, 0)
    FolderRecord("unfinished bulk job", ("#.npz",), identity=record(continuable=False)).write(folder)
    with open_folder(folder, layers="-2") as partial:
        assert partial.finished() == []


def test_a_damaged_shard_is_reported(folder: Path) -> None:
    crash_after(folder, 0)
    shard = folder / "000000.npz"
    content = bytearray(shard.read_bytes())
    content[content.index(b"NUMPY") + 130] ^= 1
    shard.write_bytes(content)
    message = r"000000\.npz is damaged .*; delete this file and run the same command"
    with open_folder(folder) as partial, pytest.raises(RegardError, match=message):
        list(partial.blocks("lines", "vectors"))
