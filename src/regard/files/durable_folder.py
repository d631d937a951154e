"""Folders that outlive their process: a record of what they are, a lock, parts that appear whole, a finish.

    folder = DurableFolder("vectors", kind="bulk job", part="part-#.parquet")
    with folder.locked():                                       # one process at a time
        folder.begin({"input": digest, "model": digest, "settings": {...}})
        for number in set(range(10)) - {*folder.parts()}:       # those that are missing
            with replace_object(folder.part(number)) as path:   # a part is complete or absent
                ...
        folder.finish({"rows": 17})

The record is written before the first file that it lists, so it is complete even if the process is killed: in a folder
without a record, every file is someone else's. Only listed files are replaced or removed. An entry is a path relative
to the folder, with / as separator; in each part * stands for any characters and # for a number:

    config.toml              a file
    shard-#/tokens.bin       the same file of all shards
    seeds/best/              the files that checksums.json in that folder lists
    checkpoints/step-*/      the same for all matching folders
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any

from regard.errors import InputError, RegardError
from regard.files import storage
from regard.files.checksums import CHECKSUMS, stays_inside, written_files
from regard.files.disk import COMMITTED, TEMPORARY, finish_save
from regard.files.json_files import NoChecksum, json_bytes, parse_checked_json, read_document, with_checksum
from regard.files.storage import Address, is_remote, join

LOCK = "lock"
RECORD = "regard.json"
RECORD_BYTES = 1 << 30  # at most; a thousand files or shards need half a megabyte
FORMAT = 1
Differences = Callable[[Mapping[str, Any], Mapping[str, Any]], list[str]]


class DamagedRecord(InputError):
    """A record that is not as it was written."""


class OtherWork(InputError):
    """A folder holds work of other inputs, another model or other settings; `reason` says which."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(f"{reason}. {hint}")
        self.reason = reason


@dataclass(frozen=True)
class FolderRecord:
    """What a folder is: `identity` has what must be the same to continue, `outcome` what a finished run leaves.

    `files` are the entries of the results, those of `work` are removed when the run is finished.
    """

    kind: str
    files: tuple[str, ...] = ()
    work: tuple[str, ...] = ()
    finished: bool = False
    identity: Mapping[str, Any] = field(default_factory=dict)
    outcome: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Address, *, kind: str | None = None, name: str = RECORD) -> FolderRecord | None:
        """Read the record of a folder; None if there is none. Raises InputError if it is invalid or not of `kind`."""
        address = join(folder, name)
        if not (storage.exists(address) if is_remote(address) else os.path.lexists(address)):
            return None
        try:
            data = storage.read_bytes(address) if is_remote(address) else read_document(address, limit=RECORD_BYTES)
        except InputError as error:
            raise DamagedRecord(str(error)) from None
        return cls.parse(data, folder, kind=kind, name=name)

    @classmethod
    def parse(cls, data: bytes, folder: Address, *, kind: str | None = None, name: str = RECORD) -> FolderRecord:
        """Like `read`, of the content of the record."""
        address = join(folder, name)
        try:
            value: Any = parse_checked_json(data, name=address)
        except NoChecksum:
            value = {}
        except InputError as error:
            raise DamagedRecord(str(error)) from None
        try:
            names = ("kind", "files", "work", "finished", "identity", "outcome")
            kind_found, files, work, finished, identity, outcome = (value[name] for name in names)
            record = cls(kind_found, tuple(files), tuple(work), finished, dict(identity), dict(outcome))
            if value["regard"] != FORMAT or not isinstance(record.kind, str) or type(finished) is not bool:
                raise ValueError
            if not all(map(_is_entry, (*record.files, *record.work))):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{address}: not a record of this version of Regard; move it, or choose another output folder"
            ) from None
        if kind is not None and record.kind != kind:
            raise InputError(f"{folder} holds a {record.kind}, expected a {kind}; choose another output folder")
        return record

    def write(self, folder: Address, *, name: str = RECORD) -> None:
        """Write the record unless the folder already has it."""
        with suppress(InputError):
            if FolderRecord.read(folder, name=name) == self:
                return
        document = with_checksum({"regard": FORMAT, **asdict(self)})
        storage.write_bytes(join(folder, name), json_bytes(document))


class DurableFolder:
    """A folder of one `kind`, on a disk or an object store, in which Regard writes `files`.

    `part` is the entry of what there is to continue with; without one, all files are but those of `start`. `work` is
    removed at the end. `published`: other programs read the folder and overlook the record and the lock, whose names
    begin with an underscore. `beside` are names that may be there before the record. `hint` says what to do with a
    folder that holds other work.
    """

    def __init__(
        self,
        address: Address,
        *,
        kind: str,
        part: str = "",
        files: Iterable[str] = (),
        work: Iterable[str] = (),
        start: Collection[str] = (),
        published: bool = False,
        beside: Collection[str] = (),
        hint: str = "Use another output, or discard that work: --restart, or delete the folder",
    ) -> None:
        self.address = storage.normalize(address)
        self.record = FolderRecord(kind, (part, *files) if part else tuple(files), tuple(work))
        self.record_name, self._lock_name = ("_" + RECORD, "_" + LOCK) if published else (RECORD, LOCK)
        self._part, self._start, self._published = part, start, published
        self._beside, self._hint = beside, hint

    @property
    def path(self) -> Path:
        return Path(self.address)

    def read(self) -> FolderRecord | None:
        """Return the record in the folder; None if there is none. Raises InputError for that of another kind."""
        return FolderRecord.read(self.address, kind=self.record.kind, name=self.record_name)

    def refuse_foreign(self) -> None:
        """Raise InputError for a folder that holds something else: its files may be the user's."""
        try:
            is_ours = self.read() is not None
        except DamagedRecord:
            if not self._has_part(self.record):  # then only the record could show whose folder it is
                raise
            is_ours = True
        if not is_ours:
            _refuse(self.address, [name for name in self._names() if name not in self._beside])

    @contextmanager
    def locked(self, *, remove: bool = True) -> Iterator[None]:
        """Hold the lock. An object store has none: two processes there do the same work twice.

        At the end the lock is removed, and the files if there is nothing to continue with; then also an empty folder,
        unless `remove` is false.
        """
        self.refuse_foreign()
        if is_remote(self.address):
            yield
            return
        with lock_folder(self.path, name=self._lock_name):
            try:
                yield
            finally:
                with suppress(RegardError):  # what cannot be read or deleted stays
                    if not self._is_continuable(self.read()):
                        self.clear()
                with suppress(OSError):  # Windows removes no open file; and the folder may not be empty
                    (self.path / self._lock_name).unlink(missing_ok=True)
                    if remove:
                        self.path.rmdir()

    def begin(
        self, identity: Mapping[str, Any], *, restart: bool = False, differences: Differences | None = None
    ) -> FolderRecord | None:
        """Return the record of the work with this identity, to continue it; None if it begins anew.

        Other work is an error unless `restart` deletes it. If the identity has a false `continuable`, because its input
        can be read only once, the work that another process left is deleted.
        """
        identity, before = json.loads(json_bytes(dict(identity))), None
        if not restart:
            try:
                before = self.read()
            except DamagedRecord as error:
                raise InputError(f"{self.address} holds a {self.record.kind}, but {error}. {self._hint}") from None
        if before is not None and self._is_continuable(before):
            if changes := (differences or describe_changes)(before.identity, identity):
                raise OtherWork(f"{self.address} holds another {self.record.kind}: {'; '.join(changes)}", self._hint)
            files, work = _all(before.files, self.record.files), _all(before.work, self.record.work)
            self.record = replace(before, identity=identity, files=files, work=work)
            if (files, work) != (before.files, before.work):  # an earlier process had others
                self.record.write(self.address, name=self.record_name)
            return before
        self.clear()
        self.record = replace(self.record, identity=identity)
        self.record.write(self.address, name=self.record_name)
        return None

    def finish(self, outcome: Mapping[str, Any] | None) -> None:
        """Record that everything is there, and remove the work; None: that it is not."""
        self.record = replace(self.record, finished=outcome is not None, outcome=outcome or {})
        self.record.write(self.address, name=self.record_name)
        if outcome is not None:
            self.remove_work()

    def remove_work(self) -> None:
        """Delete what finished work no longer needs, unless a process that was killed has; then list it no more."""
        record = self.read() if self.record.work else None
        if record is not None and record.work and remove_files(self.path, record.work):
            replace(record, work=()).write(self.address, name=self.record_name)

    def part(self, number: int) -> str:
        """Return the address of a part: # in its entry stands for the number."""
        return join(self.address, self._part.replace("#", f"{number:06d}"))

    def parts(self) -> list[int]:
        """Return the numbers of the parts that are there."""
        matches = map(re.compile(re.escape(self._part).replace(r"\#", r"(\d{6,})")).fullmatch, self._names())
        return sorted(int(match[1]) for match in matches if match)

    def remove_part(self, number: int) -> None:
        """Delete the files of a part."""
        name = self._part.replace("#", f"{number:06d}")
        self._remove(
            [name + entry.removeprefix(self._part) for entry in self.record.files if entry.startswith(self._part)]
        )

    def clear(self) -> None:
        """Delete the files and, last, the record that marks them as Regard's; the lock and other files stay."""
        record = join(self.address, self.record_name)
        if storage.exists(record):
            before: FolderRecord | None = None
            with suppress(InputError):
                before = self.read()
            listed = _all(self.record.work, self.record.files, *((before.work, before.files) if before else ()))
            self._remove([entry for entry in listed if entry != self._lock_name])
            storage.remove(record)

    def _remove(self, entries: Sequence[str]) -> None:
        if is_remote(self.address):
            patterns = [_expression(entry) for entry in entries]
            for name in self._names():
                if any(pattern.fullmatch(name) for pattern in patterns):
                    storage.remove(join(self.address, name))
            return
        complete = remove_files(self.path, entries)
        _remove_temporary(self.path)
        if not complete:
            raise RegardError(f"{self.address}: its files cannot be deleted; check the permissions")

    def _is_continuable(self, record: FolderRecord | None) -> bool:
        if record is None or record.identity.get("continuable") is False:
            return False
        return record.finished or self._has_part(record)

    def _has_part(self, record: FolderRecord) -> bool:
        if not self._part:
            return any_files(self.path, {*record.files, *record.work}.difference(self._start))
        return any(map(_expression(self._part).fullmatch, self._names()))

    def _names(self) -> list[str]:
        """The names in the folder, except those of record, lock and temporary files."""
        if is_remote(self.address):
            found = storage.list_files(self.address, missing_ok=True) if storage.exists(self.address) else []
            return [address.rpartition("/")[2] for address in found]
        names = foreign_entries(self.path, lock=self._lock_name)
        return [name for name in names if name != self.record_name and not (self._published and name.startswith("."))]


def foreign_entries(folder: Path, *, lock: str = LOCK) -> list[str]:
    """Return the names in a folder, except the temporary files and the lock that a killed process leaves."""
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    return [name for name in names if not TEMPORARY.fullmatch(name) and not (name == lock and _is_lock(folder / name))]


def refuse_foreign_content(folder: Path, *, except_for: Collection[str] = ()) -> None:
    """Raise InputError if a folder without a record is not empty: its files may be the user's."""
    _refuse(str(folder), [name for name in foreign_entries(folder) if name not in except_for])


def _refuse(folder: str, foreign: Sequence[str]) -> None:
    if foreign:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        raise InputError(
            f"{folder} is not empty: it holds {', '.join(map(repr, foreign[:3]))}{more}, which Regard did not write; "
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
    """Delete the files in the record of a folder, the model saved in it, and the folder if it is empty.

    A folder without a record is left unchanged.
    """
    record = FolderRecord.read(folder) if _has_mode(folder, stat.S_ISDIR) else None
    if record is None:
        return
    saved, listed = _remove_saved(folder), remove_files(folder, [*record.work, *record.files])
    _remove_temporary(folder)
    if saved and listed and _unlink(folder / RECORD):  # last, so that remaining files stay listed
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def lock_folder(folder: Path, *, name: str = LOCK) -> Iterator[None]:
    """Hold the lock of a folder. The operating system releases it when the process ends, even after a crash."""
    try:
        folder.mkdir(exist_ok=True)
        file = open(folder / name, "a+", encoding="ascii")  # noqa: SIM115 (closed below, and not in this `try`)
    except OSError as error:
        raise RegardError(f"{folder} cannot be written: {error.strerror}; choose another output") from error
    try:
        _acquire(file, folder / name)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
    finally:
        with suppress(OSError):  # the lock is released even so
            file.close()


def _acquire(file: IO[str], path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows, where an open file cannot be replaced by another process
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A process that finished after we opened the file, and before we locked it, has removed the file.
        if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            return
    except (BlockingIOError, FileNotFoundError):
        pass
    file.seek(0)
    raise InputError(
        f"{path.parent} is in use by process {file.read().strip() or '(unknown)'}, which writes to it; wait until that "
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
    if re.search("[*#]", parts[0]):
        names = list(filter(_expression(parts[0]).fullmatch, sorted(os.listdir(folder))))
    for name in names:
        path = folder / name
        if len(parts) == 1:
            yield path
        elif _has_mode(path, stat.S_ISDIR):
            yield from _matches(path, parts[1:])


def _expression(entry: str) -> re.Pattern[str]:
    return re.compile(re.escape(entry).replace(r"\*", ".*").replace(r"\#", r"\d+"), re.DOTALL)


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


def _all(*entries: Iterable[str]) -> tuple[str, ...]:
    """All entries, each once."""
    return tuple(dict.fromkeys(chain(*entries)))


def _is_entry(entry: object) -> bool:
    """Return whether a value is a path that cannot leave the folder."""
    return isinstance(entry, str) and stays_inside(entry) and not re.search(r"[\[\]?]", entry)
