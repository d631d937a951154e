"""The manifest of an output folder: which of the files in it Regard wrote, so that no other is replaced or removed.

The manifest is written before the first file that it lists, so it holds after a kill at any moment.

An entry is a path relative to the folder, with / between its parts, of which each may hold * for any characters:

    config.toml              a file
    seeds/best/              a folder with a list of its own files, which are meant: checksums.json
    checkpoints/step-*/      all such folders
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from regard.errors import InputError, RegardError
from regard.files.checksums import CHECKSUMS, written_files
from regard.files.disk import COMMITTED, TEMPORARY, atomic_write, finish_save
from regard.files.folder_lock import LOCK
from regard.files.json_files import json_bytes, read_checked_json, with_checksum

__all__ = ["MANIFEST", "OutputManifest", "foreign_entries", "refuse_foreign_content", "remove_files", "remove_output"]

MANIFEST = "regard.json"
FORMAT = 1


@dataclass(frozen=True)
class OutputManifest:
    """What an output folder holds: `files` stay; `work` is what an unfinished run needs and a finished one removes."""

    kind: str
    files: tuple[str, ...]
    work: tuple[str, ...] = ()
    finished: bool = False

    @classmethod
    def read(cls, folder: Path, *, kind: str | None = None) -> OutputManifest | None:
        """The manifest of a folder, None where there is none; InputError for one of another kind or maker."""
        path = folder / MANIFEST
        if not os.path.lexists(path):
            return None
        choose = "move it, or choose another output folder"
        try:
            found: Any = read_checked_json(path)
            manifest = cls(found["kind"], tuple(found["files"]), tuple(found["work"]), finished=found["finished"])
            if found["regard"] != FORMAT or not isinstance(manifest.kind, str) or type(manifest.finished) is not bool:
                raise ValueError
            if not all(map(_is_entry, (*manifest.files, *manifest.work))):
                raise ValueError
        except (InputError, KeyError, TypeError, ValueError) as error:
            reason = f": {error}" if isinstance(error, InputError) else ""
            raise InputError(f"{path}: not a manifest that this version of Regard wrote{reason}; {choose}") from None
        if kind is not None and manifest.kind != kind:
            raise InputError(f"{folder} holds a {manifest.kind}, expected a {kind}; choose another output folder")
        return manifest

    def write(self, folder: Path) -> None:
        """Write it, unless it is there already."""
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
    """What is in a folder, except what a killed save of Regard leaves: temporary files and a lock."""
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    return [name for name in names if not TEMPORARY.fullmatch(name) and not (name == LOCK and _is_lock(folder / name))]


def refuse_foreign_content(folder: Path, *, except_for: Collection[str] = ()) -> None:
    """InputError where a folder without a manifest is not empty: the content may be somebody's work."""
    found = [name for name in foreign_entries(folder) if name not in except_for]
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise InputError(
            f"{folder} is not empty: it holds {', '.join(map(repr, found[:3]))}{more}, which Regard did not write; "
            "choose a new or an empty output folder"
        )


def remove_files(folder: Path, entries: Iterable[str]) -> bool:
    """Delete the files that `entries` list, and then the folders they were in, where nothing else is in them.

    Links are neither followed nor deleted, since Regard makes none. What a killed save left beside a listed file goes
    too. Returns whether all could be deleted.
    """
    parents, complete = set[Path](), True
    for entry in entries:
        parts = PurePosixPath(entry).parts
        try:
            for place in _matches(folder, parts):
                if entry.endswith("/"):
                    complete &= _remove_saved(place)
                    parents.add(place)
                elif _has_mode(place, stat.S_ISREG):
                    complete &= _unlink(place)
            for depth in range(1, len(parts)):
                parents |= set(_matches(folder, parts[:depth]))
        except OSError:
            complete = False
    for parent in sorted(parents, key=lambda path: len(path.parts), reverse=True):
        _remove_temporary(parent)
        try:
            parent.rmdir()
        except OSError as error:  # where someone has put something there, it stays
            complete &= error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR)
    return complete


def remove_output(folder: Path) -> None:
    """Delete all that the manifest of a folder lists, the model that was saved in it, and the folder if it is empty.

    A folder without a manifest is left as it is.
    """
    manifest = OutputManifest.read(folder) if _has_mode(folder, stat.S_ISDIR) else None
    if manifest is None:
        return
    saved, listed = _remove_saved(folder), remove_files(folder, [*manifest.work, *manifest.files])
    _remove_temporary(folder)
    if saved and listed and _unlink(folder / MANIFEST):  # last: what is left must still be known
        with suppress(OSError):
            folder.rmdir()


def _remove_saved(folder: Path) -> bool:
    """Delete what `write_folder` put into a folder, the list of it last; returns whether all could be deleted."""
    with suppress(RegardError, OSError):
        finish_save(folder)
    names, complete = written_files(folder), True
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
            place = folder / name
            if TEMPORARY.fullmatch(name) and _has_mode(place, stat.S_ISDIR):
                shutil.rmtree(place, ignore_errors=True)
            elif TEMPORARY.fullmatch(name) and _has_mode(place, stat.S_ISREG):
                place.unlink(missing_ok=True)
            elif name == COMMITTED:  # empty, or it would have been moved
                place.rmdir()


def _matches(folder: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    """The paths that an entry means, without following a link on the way."""
    if not parts:
        yield folder
        return
    names = [parts[0]]
    if "*" in parts[0]:
        names = [name for name in sorted(os.listdir(folder)) if fnmatchcase(name, parts[0])]
    for name in names:
        place = folder / name
        if len(parts) == 1:
            yield place
        elif _has_mode(place, stat.S_ISDIR):
            yield from _matches(place, parts[1:])


def _has_mode(path: Path, test: Callable[[int], bool]) -> bool:
    try:
        return test(os.lstat(path).st_mode)
    except OSError:
        return False


def _is_lock(path: Path) -> bool:
    """Whether it is what `locked` makes: an empty file, or one with the number of a process."""
    if not _has_mode(path, stat.S_ISREG):
        return False
    with path.open("rb") as file:
        return re.fullmatch(rb"\d{0,20}\n?", file.read(32)) is not None


def _is_entry(entry: object) -> bool:
    """Whether it is a path that cannot lead out of the folder."""
    if not isinstance(entry, str) or re.search(r"[\\:\0\[\]?]", entry):
        return False
    parts = PurePosixPath(entry).parts
    return bool(parts) and not any(part in ("/", "..") for part in parts)
