"""Output folders: a lock for one process at a time, and a manifest of the files that Regard wrote.

No other file is replaced or removed. The manifest is written before the first file that it lists, so it is complete
even if the process is killed.

An entry is a path relative to the folder, with / as separator; each part may contain * for any characters:

    config.toml              a file
    seeds/best/              the files that checksums.json in that folder lists
    checkpoints/step-*/      the same for all matching folders
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, Any

from regard.errors import InputError, RegardError
from regard.files.checksums import CHECKSUMS, written_files
from regard.files.disk import COMMITTED, TEMPORARY, atomic_write, finish_save
from regard.files.json_files import json_bytes, read_checked_json, with_checksum

LOCK = "lock"
MANIFEST = "regard.json"
FORMAT = 1


@dataclass(frozen=True)
class OutputManifest:
    """The files of an output folder: `files` are the results, `work` files are removed when the run is finished."""

    kind: str
    files: tuple[str, ...]
    work: tuple[str, ...] = ()
    finished: bool = False

    @classmethod
    def read(cls, folder: Path, *, kind: str | None = None) -> OutputManifest | None:
        """Read the manifest of a folder; None if there is none. Raises InputError if it is invalid or not of `kind`."""
        path = folder / MANIFEST
        if not os.path.lexists(path):
            return None
        try:
            value: Any = read_checked_json(path)
            manifest = cls(value["kind"], tuple(value["files"]), tuple(value["work"]), finished=value["finished"])
            if value["regard"] != FORMAT or not isinstance(manifest.kind, str) or type(manifest.finished) is not bool:
                raise ValueError
            if not all(map(_is_entry, (*manifest.files, *manifest.work))):
                raise ValueError
        except (InputError, KeyError, TypeError, ValueError) as error:
            reason = f": {error}" if isinstance(error, InputError) else ""
            raise InputError(
                f"{path}: not a manifest of this version of Regard{reason}; move it, or choose another output folder"
            ) from None
        if kind is not None and manifest.kind != kind:
            raise InputError(f"{folder} holds a {manifest.kind}, expected a {kind}; choose another output folder")
        return manifest

    def write(self, folder: Path) -> None:
        """Write the manifest unless the folder already has it."""
        with suppress(InputError):
            if OutputManifest.read(folder) == self:
                return
        document = {
            "regard": FORMAT,
            "kind": self.kind,
            "finished": self.finished,
            "files": list(self.files),
            "work": list(self.work),
        }
        atomic_write(folder / MANIFEST, json_bytes(with_checksum(document)))


def foreign_entries(folder: Path) -> list[str]:
    """Return the names in a folder, except the temporary files and the lock that a killed process leaves."""
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    return [name for name in names if not TEMPORARY.fullmatch(name) and not (name == LOCK and _is_lock(folder / name))]


def refuse_foreign_content(folder: Path, *, except_for: Collection[str] = ()) -> None:
    """Raise InputError if a folder without a manifest is not empty: its files may be the user's."""
    names = [name for name in foreign_entries(folder) if name not in except_for]
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise InputError(
            f"{folder} is not empty: it holds {', '.join(map(repr, names[:3]))}{more}, which Regard did not write; "
            "choose a new or an empty output folder"
        )


def remove_files(folder: Path, entries: Iterable[str]) -> bool:
    """Delete the listed files, the temporary files next to them, and their folders if these are empty afterwards.

    Links are neither followed nor deleted, since Regard creates none. Returns whether everything could be deleted.
    """
    parents, complete = set[Path](), True
    for entry in entries:
        parts = PurePosixPath(entry).parts
        try:
            for path in _matches(folder, parts):
                if entry.endswith("/"):
                    complete &= _remove_saved(path)
                    parents.add(path)
                elif _has_mode(path, stat.S_ISREG):
                    complete &= _unlink(path)
            for depth in range(1, len(parts)):
                parents |= set(_matches(folder, parts[:depth]))
        except OSError:
            complete = False
    for parent in sorted(parents, key=lambda path: len(path.parts), reverse=True):
        _remove_temporary(parent)
        try:
            parent.rmdir()
        except OSError as error:  # a folder with other files stays
            complete &= error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR)
    return complete


def any_files(folder: Path, entries: Iterable[str]) -> bool:
    """Return whether something exists that one of the entries lists."""
    try:
        return any(os.path.lexists(path) for entry in entries for path in _matches(folder, PurePosixPath(entry).parts))
    except FileNotFoundError:
        return False


def remove_output(folder: Path) -> None:
    """Delete the files in the manifest of a folder, the model saved in it, and the folder if it is empty.

    A folder without a manifest is left unchanged.
    """
    manifest = OutputManifest.read(folder) if _has_mode(folder, stat.S_ISDIR) else None
    if manifest is None:
        return
    saved, listed = _remove_saved(folder), remove_files(folder, [*manifest.work, *manifest.files])
    _remove_temporary(folder)
    if saved and listed and _unlink(folder / MANIFEST):  # last, so that remaining files stay listed
        with suppress(OSError):
            folder.rmdir()


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


def describe_changes(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Describe each setting whose value changed."""
    return [
        f"{key} was {before.get(key)!r} and is {now.get(key)!r}"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    ]


def _remove_saved(folder: Path) -> bool:
    """Delete the files listed in `checksums.json`, and that list last; return whether all could be deleted.

    With a damaged list nothing is deleted.
    """
    with suppress(RegardError, OSError):
        finish_save(folder)
    names = written_files(folder)
    complete = bool(names) or not os.path.lexists(folder / CHECKSUMS)
    for name in sorted(names - {CHECKSUMS}):
        parents = [folder / parent for parent in PurePosixPath(name).parents]
        if all(_has_mode(parent, stat.S_ISDIR) for parent in parents) and _has_mode(folder / name, stat.S_ISREG):
            complete &= _unlink(folder / name)
        for parent in parents[:-1]:
            with suppress(OSError):
                os.rmdir(parent)
    return complete and (not names or _unlink(folder / CHECKSUMS))


def _unlink(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _remove_temporary(folder: Path) -> None:
    with suppress(OSError):
        for name in os.listdir(folder):
            path = folder / name
            if TEMPORARY.fullmatch(name) and _has_mode(path, stat.S_ISDIR):
                shutil.rmtree(path, ignore_errors=True)
            elif TEMPORARY.fullmatch(name) and _has_mode(path, stat.S_ISREG):
                path.unlink(missing_ok=True)
            elif name == COMMITTED:  # empty; otherwise `finish_save` would have moved its files
                path.rmdir()


def _matches(folder: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    """Yield the paths that match an entry, without following links to folders."""
    if not parts:
        yield folder
        return
    names = [parts[0]]
    if "*" in parts[0]:
        names = [name for name in sorted(os.listdir(folder)) if fnmatchcase(name, parts[0])]
    for name in names:
        path = folder / name
        if len(parts) == 1:
            yield path
        elif _has_mode(path, stat.S_ISDIR):
            yield from _matches(path, parts[1:])


def _has_mode(path: Path, test: Callable[[int], bool]) -> bool:
    try:
        return test(os.lstat(path).st_mode)
    except OSError:
        return False


def _is_lock(path: Path) -> bool:
    """Return whether a file may be one of `lock_folder`: empty, or with a process id."""
    if not _has_mode(path, stat.S_ISREG):
        return False
    with path.open("rb") as file:
        return re.fullmatch(rb"\d{0,20}\n?", file.read(32)) is not None


def _is_entry(entry: object) -> bool:
    """Return whether a value is a path that cannot leave the folder."""
    if not isinstance(entry, str) or re.search(r"[\\:\0\[\]?]", entry):
        return False
    parts = PurePosixPath(entry).parts
    return bool(parts) and not any(part in ("/", "..") for part in parts)
