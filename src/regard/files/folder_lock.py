"""Locks an output folder for one process at a time, and describes settings that changed since an interrupted run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from regard.errors import InputError, RegardError

LOCK = "lock"


def describe_changes(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Describe each setting whose value changed."""
    return [
        f"{key} was {before.get(key)!r} and is {now.get(key)!r}"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    ]


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. The operating system releases it when the process ends, even after a crash."""
    try:
        folder.mkdir(exist_ok=True)
        file = open(folder / LOCK, "a+", encoding="ascii")  # noqa: SIM115 (closed below, and not in this `try`)
    except OSError as error:
        raise RegardError(f"{folder} cannot be written: {error.strerror}; choose another output") from error
    try:
        _acquire(file, folder)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
    finally:
        with suppress(OSError):  # the lock is released even so
            file.close()


def _acquire(file: IO[str], folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows, where an open file cannot be replaced by another process
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A process that finished after we opened the file, and before we locked it, has removed the file.
        if os.path.samestat(os.fstat(file.fileno()), os.stat(folder / LOCK)):
            return
    except (BlockingIOError, FileNotFoundError):
        pass
    file.seek(0)
    raise InputError(
        f"{folder} is in use by process {file.read().strip() or '(unknown)'}, which writes to it; wait until that "
        "process ends, or choose another output"
    )
