"""Writing so that a crash, a full disk or Ctrl-C leaves the old state or the new one, never half of one.

A file is written under a temporary name beside its place and renamed over it. A folder cannot be renamed over another
without losing what else lies in it, so its new files are gathered in a staging folder; one rename of that folder to
`.regard-saved` is the moment of commitment, and `settle` moves the files to their places. Whoever reads a folder calls
`settle` first: it finishes a commitment that a crash cut short, as a database replays its journal.
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

__all__ = ["atomic_write", "finish_save", "replace_file", "replace_folder"]

COMMITTED = ".regard-saved"
REMOVALS = ".remove"
# What a save writes before its moment of commitment, or a deletion has left: .NAME.PROCESS-RANDOM.partial.SUFFIX
TEMPORARY = re.compile(r"(\..*\.)(?:(\d+)-[0-9a-f]{8}|deleted)\.partial.*")
DISK_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is larger than this system allows",
}


def atomic_write(path: str | os.PathLike[str], data: bytes) -> None:
    """Put `data` at `path`, whole or not at all."""
    with replace_file(path) as temporary, _unchanged_on_error(Path(path)):
        temporary.write_bytes(data)


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`: it takes the place of `path` on success and is removed on failure.

    Whether the place can be written is known before the body runs. The temporary name keeps the suffix of `path`, for
    some writers append the one they miss.
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
            # Some writers (safetensors is one) put a private file of their own in place of the one they are given.
            temporary.chmod(mode)
            _sync(temporary)
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):  # a later save sweeps it away
            temporary.unlink()
        raise
    with _saved_on_error(target, "the new content is in place, but a power failure now may bring back the old one"):
        _sync(target.parent)


@contextmanager
def replace_folder(folder: str | os.PathLike[str], *, remove: Iterable[str] = ()) -> Iterator[Path]:
    """Yield an empty folder: on success its files take their places in `folder` all at once, on failure it is removed.

    Files of `folder` that the new state does not hold stay, except those named in `remove`. An error after the moment
    of commitment says that the new state is saved.
    """
    target = Path(os.path.realpath(folder))
    if target.exists() and not target.is_dir():
        raise InputError(f"{folder}: cannot be written: a file of that name is in the way; move it or choose another")
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
    state = "the new state is saved" + (" and will be moved to its place when the folder is next opened" * existing)
    with _saved_on_error(target, f"{state}, but a power failure now may bring back the old one"):
        _sync(target)
        _sync(target.parent)
    finish_save(target)


def finish_save(folder: str | os.PathLike[str]) -> None:
    """Finish a save into `folder` that was cut short after its commitment; otherwise do nothing. Safe to repeat."""
    target = Path(os.path.realpath(folder))
    committed = target / COMMITTED
    if not _is_folder(committed):
        return
    try:
        _move_into_place(committed, target)
    except OSError as error:
        if not _is_folder(committed):  # another process has finished it meanwhile
            return
        raise RegardError(
            f"{target}: the new state is saved in {COMMITTED}, but could not be moved to its place "
            f"({error.strerror or error}); opening the folder again completes it. Make the folder writable, or copy it "
            "to a place that is"
        ) from error


def _move_into_place(committed: Path, target: Path) -> None:
    """Move the files, then delete what is to be removed, then the list of removals, whose absence ends the save."""
    changed = {target}
    for name in _regular_files(committed):
        if name == Path(REMOVALS):
            continue
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        _refuse_obstacle(place, target)
        # Two readers may settle one folder at once: the file that is gone is in its place already.
        _ignore_missing(os.replace, committed / name, place)
        changed |= {target / parent for parent in name.parents}
    for place in _removals(committed / REMOVALS, target):
        place.unlink(missing_ok=True)
        changed.add(place.parent)
    for parent in changed:
        _ignore_missing(_sync, parent)
    (committed / REMOVALS).unlink(missing_ok=True)
    # Only empty folders are left. Were one not empty, deleting it would lose a file.
    for folder, _, _ in os.walk(committed, topdown=False):
        with suppress(OSError):
            os.rmdir(folder)


def _regular_files(folder: Path) -> list[Path]:
    """The files below `folder`, relative to it. A link is refused: a folder made by someone else may hold any."""
    if folder.is_symlink():
        raise InputError(f"{folder}: a link has no place here; delete it")
    found = []
    for parent, folders, names in os.walk(folder, onerror=_raise):
        for name in [*folders, *names]:
            if Path(parent, name).is_symlink():
                raise InputError(f"{Path(parent, name)}: a link has no place here; delete {folder} to go on without it")
        found += [Path(parent, name).relative_to(folder) for name in names]
    return sorted(found)


def _refuse_obstacle(place: Path, target: Path) -> None:
    """InputError where a file cannot take its place: a folder has its name, or a file or link that of its folder."""
    for parent in place.parents:
        if parent == target:
            break
        if parent.exists() and not parent.is_dir():
            raise InputError(f"{parent}: a file is in the way of a folder; move it, or write elsewhere")
    if not _is_inside(place, target):
        raise InputError(f"{place}: its folder is a link that leaves {target}; remove the link")
    if place.is_dir() and not place.is_symlink():
        raise InputError(f"{place}: a folder is in the way of a file; move it, or write elsewhere")


def _removals(path: Path, target: Path) -> list[Path]:
    """The files to delete: in `target` or below it, whatever the list says."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    places = [target / line for line in lines if line and "\0" not in line]
    return [place for place in places if _is_inside(place, target) and (place.is_file() or place.is_symlink())]


def _is_inside(place: Path, target: Path) -> bool:
    """Whether the folder of `place`, all links followed, is `target` or below it."""
    return place.parent.resolve().is_relative_to(target)


def _temporary(target: Path, *, parent: Path, suffix: str = "") -> Path:
    """A new name in `parent` that carries this process's number; what dead processes left under such names goes."""
    start = f".{target.name[:40]}."
    if os.name == "posix":  # elsewhere there is no harmless question whether a process lives
        for name in os.listdir(parent):
            left = TEMPORARY.fullmatch(name)
            if left and left[1] == start and left[2] and not _lives(int(left[2])):
                leftover = parent / name
                with suppress(OSError):  # this save does not need it gone
                    shutil.rmtree(leftover) if _is_folder(leftover) else os.unlink(leftover)
    return parent / f"{start}{os.getpid()}-{secrets.token_hex(4)}.partial{suffix}"


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk."""
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
    """As Path.is_dir, except that an error of the disk is raised and not taken for an answer."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _raise(error: OSError) -> None:
    raise error


@contextmanager
def _unchanged_on_error(target: Path, *, only: Collection[int] | None = None) -> Iterator[None]:
    """Turn an OSError (of the numbers in `only`) into one that names the target and says that it is unchanged."""
    try:
        yield
    except OSError as error:
        if only is not None and error.errno not in only:
            raise
        remedy = "Make room there" if error.errno in DISK_FULL else "Check that you may write there"
        raise RegardError(
            f"{target}: cannot be written: {_reason(error)}; what was there is unchanged. {remedy}, or write elsewhere"
        ) from error


@contextmanager
def _saved_on_error(target: Path, state: str) -> Iterator[None]:
    """Turn an OSError after the moment of commitment into one that names the target and the state it is in."""
    try:
        yield
    except OSError as error:
        raise RegardError(
            f"{target}: the disk did not confirm the save ({_reason(error)}): {state}. Check the disk, then save again"
        ) from error


def _reason(error: OSError) -> str:
    return DISK_FULL.get(error.errno or 0, error.strerror or str(error))
