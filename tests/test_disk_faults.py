"""Every operation of a save fails once: the old or the new state is complete, and the error says which."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.checkpoints.files import read_tensors, write_folder
from regard.errors import RegardError
from regard.files.disk import COMMITTED, REMOVALS, TEMPORARY, atomic_write, finish_save, replace_folder
from regard.training.checkpoint import Checkpoints
from tests.faults import CODES, DiskFaults

SAVED = ("is saved", "new content is written")  # phrases of an error after the commit
State = dict[str, bytes]


def contents(folder: Path) -> State:
    """All files, except leftovers of a failed save that a later one deletes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(TEMPORARY.fullmatch(part) for part in parts):
            found["/".join(parts)] = path.read_bytes()
    return found


def file(folder: Path, version: int) -> None:
    atomic_write(folder / "a.txt", b"%d" % version * 20)


def plain_folder(folder: Path, version: int) -> None:
    removed = ["b", "sub/c"] if version > 1 else []
    with replace_folder(folder / "f", remove=removed) as staging:
        (staging / "sub").mkdir()
        for name in ("a", "sub/d", *([] if removed else ["b", "sub/c"])):
            (staging / name).write_bytes(b"%d" % version * 20)


def model_folder(folder: Path, version: int) -> None:
    """The second save has shards and lacks a file of the first."""
    tensors = {name: torch.full((8,), float(version)) for name in ("x", "y")}
    files = {"config.json": b"{}" * version, **({"vocab.txt": b"old"} if version == 1 else {})}
    write_folder(folder / "m", tensors=tensors, files=files, shard_bytes=40 if version > 1 else 10**9)


SAVES: dict[str, Callable[[Path, int], None]] = {"file": file, "folder": plain_folder, "model": model_folder}


@contextmanager
def outcome(messages: list[str]) -> Iterator[None]:
    try:
        yield
    except (RegardError, OSError) as error:
        messages.append(str(error))


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "existing"])
@pytest.mark.parametrize("name", SAVES)
def test_a_fault_at_any_operation(tmp_path: Path, name: str, fresh: bool, code: int) -> None:
    save, before, after = SAVES[name], tmp_path / "before", tmp_path / "after"
    before.mkdir()
    if not fresh:
        save(before, 1)
    shutil.copytree(before, after)
    save(after, 2)
    old, new, outcomes = contents(before), contents(after), set()
    for number in count():
        folder = shutil.copytree(before, tmp_path / str(number))
        messages: list[str] = []
        with DiskFaults(folder, fail_at=number, code=code) as disk, outcome(messages):
            save(folder, 2)
        if not disk.failed:
            break
        for name_in_folder in ("f", "m"):
            finish_save(folder / name_in_folder)  # as every reader does first
        found, where = contents(folder), f"{number}: {disk.failed}; {messages}"
        assert found in (old, new), where
        if found == new:
            assert not messages or any(word in messages[0] for word in SAVED), where
        else:
            assert messages and not any(word in messages[0] for word in SAVED), where
            assert name == "folder" or ("cannot be written" in messages[0] and "unchanged" in messages[0]), where
        outcomes.add((found == new, bool(messages)))
        with DiskFaults(folder):
            save(folder, 2)  # the next save works
        assert contents(folder) == new, where
    assert number > 6 and {(False, True), (True, True)} <= outcomes


def test_a_folder_that_cannot_be_listed_loses_nothing(tmp_path: Path) -> None:
    """After an EIO while the new files are listed, they still exist, and the next reader moves them."""
    committed = tmp_path / "f" / COMMITTED
    (committed / "sub").mkdir(parents=True)
    (tmp_path / "f" / "old").touch()
    (committed / REMOVALS).write_text("old")
    for name in ("a", "sub/b"):
        (committed / name).write_text("new")
    with DiskFaults(tmp_path / "f") as disk:
        pass
    for number in range(2):  # the folder, and the one in it
        with DiskFaults(tmp_path / "f", fail_at=number) as disk, pytest.raises(RegardError, match="is saved in"):
            finish_save(tmp_path / "f")
        assert disk.failed is not None and disk.failed.startswith("scandir")
        assert (tmp_path / "f" / "old").exists() and (committed / "sub" / "b").exists()
    finish_save(tmp_path / "f")
    assert sorted(contents(tmp_path / "f")) == ["a", "sub/b"]


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_a_fault_at_any_operation_of_a_checkpoint(tmp_path: Path, code: int) -> None:
    """Whatever fails, the newest complete checkpoint is the old or the new one, and the next save works."""

    def tensors(step: int) -> dict[str, Any]:
        return {"weight": torch.full((4,), float(step))}

    steps = []
    Checkpoints(tmp_path / "before").save(1, tensors(1), {"seen": 1})
    for number in count():
        checkpoints = Checkpoints(shutil.copytree(tmp_path / "before", tmp_path / str(number)), keep=1)
        messages: list[str] = []
        with DiskFaults(checkpoints.folder, fail_at=number, code=code) as disk, outcome(messages):
            checkpoints.save(2, tensors(2), {"seen": 2})
        if not disk.failed:
            break
        found = checkpoints.latest(on_damaged=pytest.fail)
        assert found is not None and torch.equal(found.tensors["weight"], tensors(found.step)["weight"])
        where = f"{number}: {disk.failed}; {messages}"
        if found.step == 2:
            assert not messages or any(word in messages[0] for word in SAVED), where
        else:
            assert messages and "is saved" not in messages[0], where
        steps.append(found.step)
        with DiskFaults(checkpoints.folder):
            checkpoints.save(3, tensors(3), {})
            checkpoints.save(4, tensors(4), {})
        assert [name for name in os.listdir(checkpoints.folder) if not TEMPORARY.fullmatch(name)] == ["step-000000004"]
    assert set(steps) == {1, 2} and len(steps) > 10


def test_a_blocking_folder_is_detected_before_anything_changes(tmp_path: Path) -> None:
    plain_folder(tmp_path, 1)
    (tmp_path / "f" / "new" / "mine").mkdir(parents=True)
    before = contents(tmp_path)
    with (
        pytest.raises(RegardError, match=r"f/new: is a folder"),
        replace_folder(tmp_path / "f") as staging,
    ):
        (staging / "new").write_text("a file")
    with pytest.raises(RegardError, match=r"f/a: is a file"), replace_folder(tmp_path / "f") as staging:
        (staging / "a").mkdir()
        (staging / "a" / "b").write_text("a file in a folder")
    assert contents(tmp_path) == before and not (tmp_path / "f" / COMMITTED).exists()


def test_the_shim_counts_the_operations_of_a_save(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with DiskFaults(tmp_path) as disk:
        model_folder(tmp_path, 1)
        read_tensors(tmp_path / "m")
    kinds = {operation.split()[0] for operation in disk.operations}
    assert {"write", "close", "create", "fsync", "rename", "mkdir", "scandir", "chmod"} <= kinds
    with DiskFaults(tmp_path) as disk:
        plain_folder(tmp_path, 2)
    assert {"replace", "unlink", "rmdir"} <= {operation.split()[0] for operation in disk.operations}
