"""Atomic writes: files, folders, crashes at every step, and untrusted folders."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from regard.errors import InputError, RegardError
from regard.files.disk import COMMITTED, REMOVALS, atomic_write, finish_save, replace_file, replace_folder


class Crash(BaseException):
    """Simulates the death of the process: no cleanup runs."""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_atomic_write_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    atomic_write(tmp_path / "a.txt", b"one")
    atomic_write(str(tmp_path / "a.txt"), b"two")
    assert contents(tmp_path) == {"a.txt": b"two"}


def test_mode_equals_that_of_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with replace_file(tmp_path / "a") as temporary:
        temporary.write_bytes(b"x")
        temporary.chmod(0o600)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_temporary_files_keep_the_suffix(tmp_path: Path) -> None:
    with replace_file(tmp_path / "out.npy") as temporary:
        assert temporary.parent == tmp_path
        np.save(temporary, np.arange(3))
    assert os.listdir(tmp_path) == ["out.npy"]
    assert np.load(tmp_path / "out.npy").tolist() == [0, 1, 2]


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt(), OSError(errno.ENOENT, "other file")])
def test_failure_preserves_the_old_file_and_propagates(tmp_path: Path, error: BaseException) -> None:
    atomic_write(tmp_path / "a", b"old")
    with pytest.raises(type(error)) as caught, replace_file(tmp_path / "a") as temporary:
        temporary.write_bytes(b"half")
        raise error
    assert caught.value is error
    assert contents(tmp_path) == {"a": b"old"}


def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    atomic_write(tmp_path / "real" / "a", b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "a")
    atomic_write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "a").read_bytes() == b"new"


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(InputError, match="not a regular file"):
            atomic_write(path, b"x")
    with pytest.raises(InputError, match=r"there is no folder .*none; create it"):
        atomic_write(tmp_path / "none" / "a", b"x")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_full_disk_is_reported_and_the_old_file_is_preserved(tmp_path: Path) -> None:
    atomic_write(tmp_path / "a", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(RegardError, match=r"/a: cannot be written: .*larger .* unchanged\. Free"):
            atomic_write(tmp_path / "a", bytes(5000))
        with pytest.raises(RegardError, match="cannot be written"), replace_folder(tmp_path / "f") as staging:
            (staging / "b").write_bytes(bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert contents(tmp_path) == {"a": b"old"} and os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_failure_of_fsync_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    atomic_write(tmp_path / "a", b"old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RegardError, match="/a: cannot be written"):
        atomic_write(tmp_path / "a", b"new")
    with pytest.raises(RegardError, match="/f: cannot be written"), replace_folder(tmp_path / "f") as staging:
        (staging / "b").touch()
    assert os.listdir(tmp_path) == ["a"] and contents(tmp_path) == {"a": b"old"}


def test_temporary_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, living = f"{ended.pid}-0123abcd.partial", f"{os.getppid()}-0123abcd.partial"
    for name in (dead, living):
        (tmp_path / f".a.npy.{name}.npy").touch()
        (tmp_path / f".f.{name}").mkdir()
        (tmp_path / f".f.{name}" / "x").touch()
    (tmp_path / f".other.{dead}").touch()
    atomic_write(tmp_path / "a.npy", b"")
    with replace_folder(tmp_path / "f"):
        pass
    left = {f".a.npy.{living}.npy", f".f.{living}", f".other.{dead}", "a.npy", "f"}
    assert set(os.listdir(tmp_path)) == left


def write(folder: Path, files: dict[str, str], *, remove: tuple[str, ...] = ()) -> None:
    with replace_folder(folder, remove=remove) as staging:
        for name, text in files.items():
            (staging / name).parent.mkdir(exist_ok=True)
            (staging / name).write_text(text)


def test_a_new_folder_and_its_parents(tmp_path: Path) -> None:
    write(tmp_path / "x" / "y" / "f", {"a": "1", "sub/b": "2"}, remove=("c",))
    assert contents(tmp_path) == {"x/y/f/a": b"1", "x/y/f/sub/b": b"2"}
    with pytest.raises(InputError, match="it is a file, expected a folder"):
        write(tmp_path / "x" / "y" / "f" / "a", {"b": "3"})


def test_an_existing_folder_keeps_other_files(tmp_path: Path) -> None:
    write(tmp_path / "f", {"a": "1", "b": "1", "sub/c": "1", "sub/d": "1"})
    (tmp_path / "f" / "notes").write_text("mine")
    (tmp_path / "f" / "sub" / "notes").write_text("mine too")
    write(tmp_path / "f", {"a": "2", "sub/c": "2"}, remove=("b", "sub/d", "none", "none/x", "sub"))
    assert contents(tmp_path / "f") == {"a": b"2", "sub/c": b"2", "notes": b"mine", "sub/notes": b"mine too"}
    assert set(os.listdir(tmp_path / "f")) == {"a", "sub", "notes"}


def test_failure_preserves_the_old_folder(tmp_path: Path) -> None:
    write(tmp_path / "f", {"a": "1"})
    for folder in (tmp_path / "f", tmp_path / "new"):
        with pytest.raises(KeyError), replace_folder(folder) as staging:
            (staging / "a").write_text("2")
            raise KeyError
    assert contents(tmp_path) == {"f/a": b"1"} and os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("fresh", [True, False])
def test_a_crash_at_any_step_leaves_the_old_or_the_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    old = {} if fresh else {"a": b"1", "b": b"1", "sub/c": b"1", "notes": b"mine"}
    new = {"a": b"2", "sub/c": b"2", "d": b"2"} | ({} if fresh else {"notes": b"mine"})
    outcomes = []
    for step in range(200):
        folder = tmp_path / str(step) / "f"
        if not fresh:
            write(folder, {"a": "1", "b": "1", "sub/c": "1", "notes": "mine"})
        with monkeypatch.context() as patch:
            left = [step]
            for module, name in ((os, "replace"), (os, "rename"), (os, "unlink"), (os, "fsync"), (shutil, "rmtree")):
                patch.setattr(module, name, crashing(getattr(module, name), left))
            try:
                write(folder, {"a": "2", "sub/c": "2", "d": "2"}, remove=("b",))
                finished = True
            except Crash:
                finished = False
        finish_save(folder)
        finish_save(folder)
        seen = {name: data for name, data in contents(folder).items() if ".partial/" not in name}
        assert seen in (old, new), f"after {step} steps"
        outcomes.append(seen == new)
        write(folder, {"a": "3"})  # the next save works after any crash
        assert (folder / "a").read_bytes() == b"3" and not (folder / COMMITTED).exists()
        if finished:
            break
    assert outcomes == sorted(outcomes) and outcomes[0] is False and outcomes[-1] is True and len(outcomes) > 6


def crashing(action: Callable[..., object], left: list[int]) -> Callable[..., object]:
    """Run `action` until no steps are left, then crash at this and every later step."""

    def act(*arguments: object, **options: object) -> object:
        if left[0] <= 0:
            raise Crash
        left[0] -= 1
        return action(*arguments, **options)

    return act


def test_settle_completes_the_commit_of_another_process(tmp_path: Path) -> None:
    (tmp_path / "f" / COMMITTED / "sub").mkdir(parents=True)
    (tmp_path / "f" / "old").touch()
    (tmp_path / "f" / COMMITTED / "sub" / "a").write_text("new")
    (tmp_path / "f" / COMMITTED / REMOVALS).write_text("old")
    finish_save(tmp_path / "f")
    assert contents(tmp_path / "f") == {"sub/a": b"new"}
    finish_save(tmp_path / "none")


def test_untrusted_folder_cannot_affect_files_outside(tmp_path: Path) -> None:
    """`settle` runs before a folder is read, so that a hostile folder may contain a forged commit record."""
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "other").mkdir()
    folder = tmp_path / "f"

    def fresh() -> Path:
        shutil.rmtree(folder, ignore_errors=True)
        (folder / COMMITTED).mkdir(parents=True)
        return folder / COMMITTED

    (fresh() / REMOVALS).write_text(
        f"../secret\n{tmp_path}/secret\n..\n.\nsub/../../secret\nlink/secret\nx\0y\nlink/..\n"
    )
    (folder / "link").symlink_to(tmp_path)
    finish_save(folder)
    assert (tmp_path / "secret").exists() and not (folder / COMMITTED).exists()

    (fresh() / "sub").mkdir()
    (folder / COMMITTED / "sub" / "planted").touch()
    (folder / "sub").symlink_to(tmp_path / "other")
    with pytest.raises(InputError, match="a link that leaves"):
        finish_save(folder)

    (fresh() / "stolen").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="links are not allowed"):
        finish_save(folder)

    fresh().rmdir()
    (folder / COMMITTED).symlink_to(tmp_path / "other")
    (tmp_path / "other" / "theirs").touch()
    with pytest.raises(InputError, match="links are not allowed"):
        finish_save(folder)
    assert contents(tmp_path / "other") == {"theirs": b""} and (tmp_path / "secret").read_text() == "mine"
