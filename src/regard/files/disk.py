"""Atomic writes: a crash, a full disk or Ctrl-C leaves the old state or the new one, never a mixture.

A file is written under a temporary name in the same folder and renamed to its target. A folder cannot be renamed over
another without losing the other files in it, so new files are collected in a staging folder. Renaming that folder to
`.regard-saved` commits the save, and `finish_save` moves the files to their targets. Code that reads a folder calls
`finish_save` first, which completes a save that was interrupted after the commit, as a database replays its journal.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.errors import InputError, RegardError

COMMITTED = ".regard-saved"
REMOVALS = ".remove"
# Files of an uncommitted save, or left by a deletion: .NAME.PROCESS-RANDOM.partial.SUFFIX
TEMPORARY = re.compile(r"(\..*\.)(?:(\d+)-[0-9a-f]{8}|deleted)\.partial.*")
DISK_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is larger than this system allows",
}


def atomic_write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path` completely or not at all."""
    with replace_file(path) as temporary, _unchanged_on_error(Path(path)):
        temporary.write_bytes(data)


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; it replaces `path` on success and is removed on failure.

    Whether `path` can be written is checked before the body runs. The temporary name keeps the suffix of `path`,
    because some writers append a missing one.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise InputError(f"{path}: cannot be written: it is not a regular file; give the name of a new file")
    if not target.parent.is_dir():
        raise InputError(f"{path}: cannot be written: there is no folder {target.parent}; create it first")
    with _unchanged_on_error(target):
        temporary = _temporary(target, parent=target.parent, suffix=target.suffix)
    try:
        with _unchanged_on_error(target):
            temporary.touch(exist_ok=False)
            mode = temporary.stat().st_mode
        with _unchanged_on_error(target, only=DISK_FULL):
            yield temporary
        with _unchanged_on_error(target):
            # Some writers (such as safetensors) replace the file with one that only the owner can read.
            temporary.chmod(mode)
            _sync(temporary)
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):  # a later save removes it
            temporary.unlink()
        raise
    with _saved_on_error(target, "the new content is written, but a power failure now may restore the old content"):
        _sync(target.parent)


@contextmanager
def replace_folder(folder: str | os.PathLike[str], *, remove: Iterable[str] = ()) -> Iterator[Path]:
    """Yield an empty staging folder; on success its files move to `folder` all at once, on failure it is removed.

    Other files in `folder` stay, except those named in `remove`. An error after the commit says that the new state is
    saved.
    """
    target = Path(os.path.realpath(folder))
    if target.exists() and not target.is_dir():
        raise InputError(
            f"{folder}: cannot be written: it is a file, expected a folder; move it or choose another name"
        )
    with _unchanged_on_error(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        finish_save(target)
        staging = _temporary(target, parent=target if target.is_dir() else target.parent)
        staging.mkdir()
    try:
        with _unchanged_on_error(target, only=DISK_FULL):
            yield staging
        with _unchanged_on_error(target):
            existing = target.is_dir()
            if existing:
                for new in _regular_files(staging):
                    _refuse_obstacle(target / new, target)
                (staging / REMOVALS).write_text("\n".join(remove), encoding="utf-8")
            for parent, _, names in os.walk(staging, topdown=False, onerror=_raise):
                for name in names:
                    _sync(Path(parent, name))
                _sync(Path(parent))
            os.rename(staging, target / COMMITTED if existing else target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    state = "the new state is saved" + (" and its files will be moved when the folder is next opened" * existing)
    with _saved_on_error(target, f"{state}, but a power failure now may restore the old state"):
        _sync(target)
        _sync(target.parent)
    finish_save(target)


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`, with a name derived from it; it is removed at the end.

    Folders that processes left behind when they were killed are removed first.
    """
    with _unchanged_on_error(path):
        scratch = _temporary(path, parent=path.parent)
        scratch.mkdir()
    try:
        with _unchanged_on_error(path, only=DISK_FULL):
            yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def finish_save(folder: str | os.PathLike[str]) -> None:
    """Complete a save into `folder` that was interrupted after its commit; otherwise do nothing. Safe to repeat."""
    target = Path(os.path.realpath(folder))
    committed = target / COMMITTED
    if not _is_folder(committed):
        return
    try:
        _move_files(committed, target)
    except OSError as error:
        if not _is_folder(committed):  # another process has completed it
            return
        raise RegardError(
            f"{target}: the new state is saved in {COMMITTED}, but its files could not be moved into the folder "
            f"({error.strerror or error}); opening the folder again completes it. Make the folder writable, or copy it "
            "to a writable location"
        ) from error


def _move_files(committed: Path, target: Path) -> None:
    """Move the files, then delete the files to remove, then the list of removals, whose absence ends the save."""
    changed = {target}
    for name in _regular_files(committed):
        if name == Path(REMOVALS):
            continue
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _refuse_obstacle(path, target)
        # Two readers may finish the same save: a missing file has already been moved.
        _ignore_missing(os.replace, committed / name, path)
        changed |= {target / parent for parent in name.parents}
    for path in _removals(committed / REMOVALS, target):
        path.unlink(missing_ok=True)
        changed.add(path.parent)
    for parent in changed:
        _ignore_missing(_sync, parent)
    (committed / REMOVALS).unlink(missing_ok=True)
    # Only empty folders are left; rmdir fails on any other.
    for folder, _, _ in os.walk(committed, topdown=False):
        with suppress(OSError):
            os.rmdir(folder)


def _regular_files(folder: Path) -> list[Path]:
    """Return the files below `folder`, relative to it. Links are refused: the folder may come from someone else."""
    if folder.is_symlink():
        raise InputError(f"{folder}: links are not allowed here; delete it")
    files: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=_raise):
        for name in [*folders, *names]:
            if Path(parent, name).is_symlink():
                raise InputError(f"{Path(parent, name)}: links are not allowed here; delete {folder} to discard it")
        files += [Path(parent, name).relative_to(folder) for name in names]
    return sorted(files)


def _refuse_obstacle(path: Path, target: Path) -> None:
    """Raise InputError if a folder has the name of the file `path`, or a file or link that of one of its folders."""
    for parent in path.parents:
        if parent == target:
            break
        if parent.exists() and not parent.is_dir():
            raise InputError(f"{parent}: is a file, expected a folder; move it, or write elsewhere")
    if not _is_inside(path, target):
        raise InputError(f"{path}: its folder is a link that leaves {target}; remove the link")
    if path.is_dir() and not path.is_symlink():
        raise InputError(f"{path}: is a folder, expected a file; move it, or write elsewhere")


def _removals(path: Path, target: Path) -> list[Path]:
    """Return the files to delete; entries that lead out of `target` are ignored."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    files = [target / line for line in lines if line and "\0" not in line]
    return [file for file in files if _is_inside(file, target) and (file.is_file() or file.is_symlink())]


def _is_inside(path: Path, target: Path) -> bool:
    """Return whether the folder of `path`, with links resolved, is `target` or below it."""
    return path.parent.resolve().is_relative_to(target)


def _temporary(target: Path, *, parent: Path, suffix: str = "") -> Path:
    """Return a new name in `parent` with the id of this process, and delete such files of dead processes."""
    start = f".{target.name[:40]}."
    if os.name == "posix":  # on Windows, os.kill(pid, 0) ends the process
        for name in os.listdir(parent):
            match = TEMPORARY.fullmatch(name)
            if match and match[1] == start and match[2] and not _is_running(int(match[2])):
                leftover = parent / name
                with suppress(OSError):  # not needed for this save
                    shutil.rmtree(leftover) if _is_folder(leftover) else os.unlink(leftover)
    return parent / f"{start}{os.getpid()}-{secrets.token_hex(4)}.partial{suffix}"


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _sync(path: Path) -> None:
    """Wait until the bytes of a file, or the names in a folder, are on disk."""
    if os.name != "posix" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _ignore_missing(action: Callable[..., object], *arguments: Path) -> None:
    with suppress(FileNotFoundError):
        action(*arguments)


def _is_folder(path: Path) -> bool:
    """Like Path.is_dir, but raise disk errors instead of returning False."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _raise(error: OSError) -> None:
    raise error


@contextmanager
def _unchanged_on_error(target: Path, *, only: Collection[int] | None = None) -> Iterator[None]:
    """Convert an OSError (with an errno in `only`) to a RegardError that names the target and says it is unchanged."""
    try:
        yield
    except OSError as error:
        if only is not None and error.errno not in only:
            raise
        remedy = "Free some space" if error.errno in DISK_FULL else "Check the permissions"
        raise RegardError(
            f"{target}: cannot be written: {_reason(error)}; the previous content is unchanged. {remedy}, or write "
            "elsewhere"
        ) from error


@contextmanager
def _saved_on_error(target: Path, state: str) -> Iterator[None]:
    """Convert an OSError after the commit to a RegardError that names the target and its state."""
    try:
        yield
    except OSError as error:
        raise RegardError(
            f"{target}: the disk did not confirm the save ({_reason(error)}): {state}. Check the disk, then save again"
        ) from error


def _reason(error: OSError) -> str:
    return DISK_FULL.get(error.errno or 0, error.strerror or str(error))
