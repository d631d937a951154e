"""A disk on which one operation fails: a shim over Python's file operations, for tests of saving.

    with DiskFaults(folder) as disk: ...                               # counts: len(disk.operations)
    with DiskFaults(folder, fail_at=3, code=errno.ENOSPC) as disk: ... # the fourth operation fails, once

Counts only operations on `below` and the files in it: creating, writing, flushing and closing a file, fsync, rename,
replace, unlink, rmdir, mkdir, chmod, scandir and listdir. An operation that fails has no effect, except that half of
the bytes of a failing write reach the file. Sees Python's calls only; a save by safetensors is counted
as one write. Reading a file and `stat` never fail. fsync is only counted.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

from regard.checkpoints import files as weight_files

__all__ = ["CODES", "DiskFaults"]

CODES = (errno.EIO, errno.ENOSPC)
PATH_OPERATIONS = ("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "chmod", "scandir", "listdir")


class DiskFaults:
    """Makes operation `fail_at` (from 0) below a folder fail with `code`; None: no operation fails."""

    def __init__(self, below: Path, *, fail_at: int | None = None, code: int = errno.EIO) -> None:
        self.below, self.fail_at, self.code = os.path.realpath(below), fail_at, code
        self.operations: list[str] = []
        self._handles: dict[int, str] = {}
        self._patch = pytest.MonkeyPatch()

    @property
    def failed(self) -> str | None:
        """The operation that failed, if it was reached."""
        reached = self.fail_at is not None and self.fail_at < len(self.operations)
        return self.operations[self.fail_at] if reached and self.fail_at is not None else None

    def __enter__(self) -> DiskFaults:
        for name in PATH_OPERATIONS:
            self._patch.setattr(os, name, self._path_operation(name, getattr(os, name)))
        self._patch.setattr(os, "open", self._os_open(os.open))
        self._patch.setattr(os, "close", self._os_close(os.close))
        self._patch.setattr(os, "fsync", self._fsync)
        opened = self._open(io.open)
        self._patch.setattr(io, "open", opened)
        self._patch.setattr(builtins, "open", opened)
        self._patch.setattr(weight_files, "save_file", self._save_file(weight_files.save_file))
        return self

    def __exit__(self, *error: object) -> None:
        self._patch.undo()

    def count(self, what: str, path: str) -> OSError | None:
        """Records an operation on a path below the folder; returns the error to raise if it is the one to fail."""
        if path != self.below and not path.startswith(self.below + os.sep):
            return None
        self.operations.append(f"{what} {os.path.relpath(path, self.below)}")
        fails = len(self.operations) - 1 == self.fail_at
        named = what not in ("write", "flush", "close", "fsync")  # errors on a file handle have no file name
        return OSError(self.code, os.strerror(self.code), *([path] if named else [])) if fails else None

    def check(self, what: str, path: str) -> None:
        if error := self.count(what, path):
            raise error

    def _where(self, path: Any, folder: int | None = None) -> str:
        if isinstance(path, int):
            return self._handles.get(path, "")
        start = os.getcwd() if folder is None else self._handles.get(folder, "")
        return os.path.normpath(os.path.join(start, os.fsdecode(path)))

    def _path_operation(self, name: str, action: Callable[..., Any]) -> Callable[..., Any]:
        def act(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            self.check(name, self._where(path, options.get("dir_fd")))
            return action(path, *arguments, **options)

        return act

    def _os_open(self, action: Callable[..., int]) -> Callable[..., int]:
        def act(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            where = self._where(path, options.get("dir_fd"))
            if flags & os.O_CREAT:
                self.check("create", where)
            handle = action(path, flags, *arguments, **options)
            self._handles[handle] = where
            return handle

        return act

    def _os_close(self, action: Callable[[int], None]) -> Callable[[int], None]:
        def act(handle: int) -> None:
            self._handles.pop(handle, None)
            action(handle)

        return act

    def _fsync(self, handle: Any) -> None:
        self.check("fsync", self._handles.get(handle if isinstance(handle, int) else handle.fileno(), ""))

    def _open(self, action: Callable[..., Any]) -> Callable[..., Any]:
        def act(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if isinstance(file, int) or not set(mode) & set("wax+"):
                return action(file, mode, *arguments, **options)
            where = self._where(file)
            self.check("create", where)
            return _File(action(file, mode, *arguments, **options), where, self)

        return act

    def _save_file(self, action: Callable[..., None]) -> Callable[..., None]:
        def act(tensors: Any, path: Any, **options: Any) -> None:
            if error := self.count("write", self._where(path)):
                Path(path).write_bytes(b"half")
                raise SafetensorError(f"Error while serializing: I/O error: {error.strerror}")
            action(tensors, path, **options)

        return act


class _File:
    """A file opened for writing whose writes, flushes and closing are counted."""

    def __init__(self, file: Any, path: str, disk: DiskFaults) -> None:
        self._file, self._path, self._disk = file, path, disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def write(self, data: Any) -> int:
        if error := self._disk.count("write", self._path):
            self._file.write(data[: len(data) // 2])
            raise error
        written: int = self._file.write(data)
        return written

    def flush(self) -> None:
        self._disk.check("flush", self._path)
        self._file.flush()

    def close(self) -> None:
        if self._file.closed:
            return
        error = self._disk.count("close", self._path)
        self._file.close()
        if error:
            raise error
