"""Work that may be cut short and taken up again in a folder: one process at a time, and only with the same settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from regard.errors import InputError, RegardError

__all__ = ["LOCK", "describe_changes", "lock_folder"]

LOCK = "lock"


def describe_changes(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """What of some settings is otherwise now, in words."""
    return [
        f"{key} was {before.get(key)!r} and is {now.get(key)!r}"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    ]


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Let one process at a time in. The system drops the lock of a process that dies, however it dies."""
    try:
        folder.mkdir(exist_ok=True)
        file = open(folder / LOCK, "a+", encoding="ascii")  # noqa: SIM115 (closed below, and not in this `try`)
    except OSError as error:
        raise RegardError(f"{folder} cannot be written: {error.strerror}; choose another output") from error
    try:
        _take(file, folder)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
    finally:
        with suppress(OSError):  # the lock is given up even so
            file.close()


def _take(file: IO[str], folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows, where no process renames over a file that another has open
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A holder that finished between our opening and our taking has removed the file we now hold.
        if os.path.samestat(os.fstat(file.fileno()), os.stat(folder / LOCK)):
            return
    except (BlockingIOError, FileNotFoundError):
        pass
    file.seek(0)
    raise InputError(
        f"{folder} is in use by process {file.read().strip() or 'of unknown number'}, which writes the same output; "
        "wait until it ends, or use another output"
    )
