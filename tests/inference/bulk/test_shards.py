"""The folder of unfinished work: what is preserved, what is deleted, and locking."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.errors import InputError, RegardError
from regard.files.durable_folder import FolderRecord
from regard.inference.bulk.shards import Block, ShardFolder, locked_shard_folder


def record(*, continuable: bool = True, **settings: object) -> dict[str, Any]:
    return {"format": 1, "continuable": continuable, "input": "a", "model": "b", "settings": settings}


def blocks(*numbers: int) -> Iterator[Block]:
    for number in numbers:
        yield {"lines": np.array([number]), "vectors": np.full((1, 2), number, dtype=np.float32)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out.npy.partial"


class Stop(BaseException):
    """Stands for a crash of the process."""


def crash_after(folder: Path, *shards: int, **options: Any) -> None:
    with pytest.raises(Stop), locked_shard_folder(folder, record(**options)) as partial:
        for shard in shards:
            list(partial.write(shard, blocks(shard)))
        raise Stop


def test_shards_survive_and_come_back_in_order(folder: Path) -> None:
    crash_after(folder, 0, 2)
    inode = (folder / "000002.npz").stat().st_ino
    with locked_shard_folder(folder, record()) as partial:
        assert partial.finished() == [0, 2]
        list(partial.write(1, blocks(10, 11)))
        assert [block["lines"][0] for block in partial.blocks("lines")] == [0, 10, 11, 2]
        assert (folder / "000002.npz").stat().st_ino == inode
        partial.clear()
    assert not folder.exists()


def test_a_shard_is_complete_or_missing(folder: Path) -> None:
    def broken() -> Iterator[Block]:
        yield from blocks(1)
        raise Stop

    with locked_shard_folder(folder, record()) as partial:
        list(partial.write(0, blocks(0)))
        with pytest.raises(Stop):
            list(partial.write(1, broken()))
        assert partial.finished() == [0]
        assert sorted(os.listdir(folder)) == ["000000.npz", "lock", "regard.json"]


def test_no_folder_remains_if_no_shard_was_finished(folder: Path) -> None:
    crash_after(folder)
    assert not folder.exists()


def test_work_that_cannot_be_resumed_is_deleted(folder: Path) -> None:
    crash_after(folder, 0, continuable=False)
    assert not folder.exists()


def test_leftovers_of_a_killed_process_reading_a_pipe_are_deleted(folder: Path) -> None:
    crash_after(folder, 0)
    FolderRecord("unfinished bulk job", ("#.npz",), identity=record(continuable=False)).write(folder)
    with locked_shard_folder(folder, record(layers="-2")) as partial:
        assert partial.finished() == []


def test_other_settings_are_refused_and_nothing_is_lost(folder: Path) -> None:
    crash_after(folder, 0, layers="-1")
    message = r"out\.npy\.partial holds .*: layers was '-1' and is '-2'\. .*--restart"
    with pytest.raises(InputError, match=message), locked_shard_folder(folder, record(layers="-2")):
        pass
    with locked_shard_folder(folder, record(layers="-1")) as partial:
        assert partial.finished() == [0]


def test_restart_deletes_earlier_work(folder: Path) -> None:
    crash_after(folder, 0, layers="-1")
    with locked_shard_folder(folder, record(layers="-2"), restart=True) as partial:
        assert partial.finished() == []


def test_every_value_of_a_record_is_compared(folder: Path) -> None:
    crash_after(folder, 0)
    path = folder / "regard.json"
    good = path.read_text()
    for old, new in (("true", "false"), ('"a"', '"c"'), ("continuable", "continuablf"), ("checksum", "chfcksum")):
        path.write_text(good.replace(old, new))
        with pytest.raises(InputError, match=r"regard\.json.*--restart"), locked_shard_folder(folder, record()):
            pass
    path.write_text(good)
    with locked_shard_folder(folder, record()) as partial:
        assert partial.finished() == [0]


@pytest.mark.parametrize("deleted", range(4))
def test_a_kill_during_deletion(deleted: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remaining files are still recognized, in whatever order the system lists them."""
    crash_after(folder, 0, 1, 2)
    names = ["regard.json", "000000.npz", "000001.npz", "000002.npz"]
    assert {*names} == {*os.listdir(folder)}
    unlink, left = Path.unlink, deleted

    def unlink_or_crash(path: Path, missing_ok: bool = False) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink_or_crash)
        patch.setattr(os, "listdir", lambda folder: names)
        with pytest.raises(KeyboardInterrupt):
            ShardFolder(folder).clear()
    with locked_shard_folder(folder, record()) as partial:
        assert len(partial.finished()) == 3 - deleted


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_a_damaged_record_is_an_error(content: str, folder: Path) -> None:
    crash_after(folder, 0)
    (folder / "regard.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"regard\.json.*--restart"), locked_shard_folder(folder, record()):
        pass
    with locked_shard_folder(folder, record(), restart=True) as partial:
        assert partial.finished() == []


def test_an_unrelated_folder_is_not_touched(folder: Path) -> None:
    folder.mkdir()
    (folder / "thesis.txt").write_text("words", encoding="utf-8")
    for restart in (False, True):
        with (
            pytest.raises(InputError, match=r"it holds 'thesis\.txt'"),
            locked_shard_folder(folder, record(), restart=restart),
        ):
            pass
    assert os.listdir(folder) == ["thesis.txt"]


def test_a_file_in_place_of_the_folder(folder: Path) -> None:
    folder.write_text("words", encoding="utf-8")
    with pytest.raises(RegardError, match="cannot be written"), locked_shard_folder(folder, record()):
        pass


def test_one_process_at_a_time(folder: Path) -> None:
    with locked_shard_folder(folder, record()) as partial:
        list(partial.write(0, blocks(0)))
        with (
            pytest.raises(InputError, match=rf"in use by process {os.getpid()}"),
            locked_shard_folder(folder, record()),
        ):
            pass
        assert partial.finished() == [0]
    with locked_shard_folder(folder, record()):  # released
        pass


def test_the_lock_of_a_dead_process_is_taken_over(folder: Path) -> None:
    """A process that holds the lock is killed with SIGKILL; its process id in the file no longer matters."""
    folder.mkdir()
    program = (
        "import fcntl, os, signal, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); "
        "file.write(str(os.getpid())); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    dead = subprocess.run([sys.executable, "-c", program, str(folder / "lock")])
    assert dead.returncode == -9
    assert (folder / "lock").read_text(encoding="ascii")
    with locked_shard_folder(folder, record()):
        assert (folder / "lock").read_text(encoding="ascii") == f"{os.getpid()}\n"


def test_a_damaged_shard_is_reported(folder: Path) -> None:
    crash_after(folder, 0)
    shard = folder / "000000.npz"
    content = bytearray(shard.read_bytes())
    content[content.index(b"NUMPY") + 130] ^= 1
    shard.write_bytes(content)
    message = r"000000\.npz is damaged .*; delete this file and run the same command"
    with locked_shard_folder(folder, record()) as partial, pytest.raises(RegardError, match=message):
        list(partial.blocks("lines", "vectors"))
