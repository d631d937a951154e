"""Writing so that a crash, a full disk or Ctrl-C leaves the old state or the new one, never half of one.

Knows paths, renames and fsync. Knows nothing of tensors, formats or models.

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
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.errors import InputError, RegardError

__all__ = ["atomic_write", "replacing", "replacing_folder", "settle"]

COMMITTED = ".regard-saved"
REMOVALS = ".remove"
DISK_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is larger than this system allows",
}


def atomic_write(path: str | os.PathLike[str], data: bytes) -> None:
    """Put `data` at `path`, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`: it takes the place of `path` on success and is removed on failure.

    Whether the place can be written is known before the body runs. The temporary name keeps the suffix of `path`, for
    some writers append the one they miss.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise InputError(f"{path}: cannot be written: it is not a regular file; give the name of a new file")
    if not target.parent.is_dir():
        raise InputError(f"{path}: cannot be written: there is no folder {target.parent}; create it first")
    temporary = _temporary(target, parent=target.parent, suffix=target.suffix)
    try:
        with _explained(target):
            temporary.touch(exist_ok=False)
            mode = temporary.stat().st_mode
        with _explained(target, only=DISK_FULL):
            yield temporary
        with _explained(target):
            # Some writers (safetensors is one) put a private file of their own in place of the one they are given.
            temporary.chmod(mode)
            _sync(temporary)
            os.replace(temporary, target)
            _sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(folder: str | os.PathLike[str], *, remove: Iterable[str] = ()) -> Iterator[Path]:
    """Yield an empty folder: on success its files take their places in `folder` all at once, on failure it is removed.

    Files of `folder` that the new state does not hold stay, except those named in `remove`.
    """
    target = Path(os.path.realpath(folder))
    if target.exists() and not target.is_dir():
        raise InputError(f"{folder}: cannot be written: a file of that name is in the way; move it or choose another")
    with _explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        settle(target)
        staging = _temporary(target, parent=target if target.is_dir() else target.parent)
        staging.mkdir()
    try:
        with _explained(target, only=DISK_FULL):
            yield staging
        with _explained(target):
            if target.is_dir():
                (staging / REMOVALS).write_text("\n".join(remove), encoding="utf-8")
            for parent, _, names in os.walk(staging, topdown=False):
                for name in names:
                    _sync(Path(parent, name))
                _sync(Path(parent))
            os.rename(staging, target / COMMITTED if target.is_dir() else target)
            _sync(target)
            _sync(target.parent)
            settle(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def settle(folder: str | os.PathLike[str]) -> None:
    """Finish a save into `folder` that was cut short after its commitment; otherwise do nothing. Safe to repeat."""
    target = Path(os.path.realpath(folder))
    committed = target / COMMITTED
    if not committed.is_dir():
        return
    try:
        for name in _regular_files(committed):
            if name == Path(REMOVALS):
                continue
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if not _is_inside(place, target):
                raise InputError(f"{place}: its folder is a link that leaves {target}; remove the link")
            # Two readers may settle one folder at once: the file that is gone is in its place already.
            _ignore_missing(os.replace, committed / name, place)
            _ignore_missing(_sync, place.parent)
        for place in _removals(committed / REMOVALS, target):
            place.unlink(missing_ok=True)
        _sync(target)
        shutil.rmtree(committed, ignore_errors=True)
    except OSError as error:
        raise RegardError(
            f"{target}: its last save was cut short and cannot be finished here ({error.strerror or error}); "
            "make the folder writable, or copy it to a place that is, and try again"
        ) from error


def _regular_files(folder: Path) -> list[Path]:
    """The files below `folder`, relative to it. A link is refused: a folder made by someone else may hold any."""
    if folder.is_symlink():
        raise InputError(f"{folder}: a link has no place here; delete it")
    found = []
    for parent, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            if Path(parent, name).is_symlink():
                raise InputError(f"{Path(parent, name)}: a link has no place here; delete {folder} to go on without it")
        found += [Path(parent, name).relative_to(folder) for name in names]
    return sorted(found)


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
            left = re.fullmatch(re.escape(start) + r"(\d+)-[0-9a-f]{8}\.partial.*", name)
            if left and not _lives(int(left[1])):
                leftover = parent / name
                _ignore_missing(shutil.rmtree if leftover.is_dir() else os.unlink, leftover)
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


@contextmanager
def _explained(target: Path, *, only: Collection[int] | None = None) -> Iterator[None]:
    """Turn an OSError (of the numbers in `only`) into one that names the target and says that it is unchanged."""
    try:
        yield
    except OSError as error:
        if only is not None and error.errno not in only:
            raise
        reason = DISK_FULL.get(error.errno or 0, error.strerror or str(error))
        remedy = "Make room there" if error.errno in DISK_FULL else "Check that you may write there"
        raise RegardError(
            f"{target}: cannot be written: {reason}; what was there is unchanged. {remedy}, or write elsewhere"
        ) from error
