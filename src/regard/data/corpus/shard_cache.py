"""The files of a corpus on an object store, fetched when they are needed or before, in a folder of bounded size.

Processes on one machine share the folder. Files that were not used for the longest time are deleted first; those that
are in use or asked for are kept. The size and the SHA-256 of every file that is fetched are compared with the manifest.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.corpus.folder import FileState, Ids
from regard.errors import InputError, RegardError
from regard.files.checksums import sha256_of
from regard.files.disk import replace_file
from regard.files.file_input import format_size
from regard.files.storage import fetch, join

CACHE_BYTES = 16 << 30
THREADS = 4  # files that are fetched at a time
ATTEMPTS = 2  # of a file that arrives damaged
EVICTIONS = 5  # times that other processes may delete a file before it is opened


class ShardCache:
    """Local copies of the files of a corpus at an address: name -> (size, SHA-256). `limit` is in bytes."""

    def __init__(self, address: str, folder: Path, files: Mapping[str, FileState], limit: int) -> None:
        self.address, self.folder, self.files, self.limit = address, folder, files, limit
        largest = max((size for size, _ in files.values()), default=0)
        if largest > limit:
            raise InputError(
                f"the cache of {format_size(limit)} is smaller than a shard of {address}, {largest:,} bytes; use a "
                "larger --cache-size"
            )
        self._start()

    def _start(self) -> None:
        self._lock = threading.RLock()
        self._pool: ThreadPoolExecutor | None = None
        self._pending: dict[str, Future[Path]] = {}
        self._mapped: dict[str, Ids] = {}
        self._kept: frozenset[str] = frozenset()
        self._arriving: list[int] = []  # sizes of files that are being fetched

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("address", "folder", "files", "limit")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    def path(self, name: str) -> Path:
        """Return the local copy of a file; fetch it first if it is not there.

        Raises InputError that names a file that is missing on the store, or damaged.
        """
        with self._lock:
            future = self._pending.get(name)
        if future is not None:
            with suppress(RegardError):  # another attempt may succeed, and else its error is raised here
                return future.result()
        path = self.folder / name
        if self._is_here(name):
            with suppress(OSError):
                os.utime(path)
            return path
        return self._fetch(name)

    def array(self, name: str, dtype: np.dtype[Any]) -> Ids:
        """Return the memory-mapped content of a file."""
        found = self._mapped.get(name)
        if found is not None:
            return found
        for _ in range(EVICTIONS):
            path = self.path(name)
            try:
                mapped: Ids = np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)
            except FileNotFoundError:  # another process has deleted it since
                continue
            with self._lock:
                self._mapped[name] = mapped
            return mapped
        raise RegardError(f"{self.folder} is too small for the processes that share it; use a larger --cache-size")

    def prefetch(self, names: Iterable[str]) -> None:
        """Fetch files in the background, in this order, as far as they fit together; they replace others."""
        room, wanted = self.limit, []
        for name in dict.fromkeys(names):
            room -= self.files[name][0]
            if room < 0:
                break
            wanted.append(name)
        with self._lock:
            self._kept = frozenset(wanted)
            for name in wanted:
                if name not in self._pending and not self._is_here(name):
                    self._pool = self._pool or ThreadPoolExecutor(THREADS, thread_name_prefix="shards")
                    self._pending[name] = future = self._pool.submit(self._fetch, name)
                    future.add_done_callback(lambda _, name=name: self._done(name))  # type: ignore[misc]

    def _done(self, name: str) -> None:
        with self._lock:
            self._pending.pop(name, None)

    def _is_here(self, name: str) -> bool:
        try:
            return (self.folder / name).stat().st_size == self.files[name][0]
        except OSError:
            return False

    def _fetch(self, name: str) -> Path:
        path, address = self.folder / name, join(self.address, name)
        size, digest = self.files[name]
        self._make_room(size, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            for _ in range(ATTEMPTS):
                with suppress(_Damaged), replace_file(path) as temporary:
                    fetch(address, temporary)
                    if temporary.stat().st_size != size or sha256_of(temporary) != digest:
                        raise _Damaged
                if self._is_here(name):
                    return path
        finally:
            with self._lock:
                self._arriving.remove(size)
        raise InputError(f"{address} is damaged: it differs from what the manifest says; upload the corpus again")

    def _make_room(self, size: int, name: str) -> None:
        """Delete files, first those that are not asked for and were opened longest ago, until `size` bytes fit."""
        with self._lock:
            files = []
            for path in self.folder.glob("shard-*/[!.]*"):
                with suppress(OSError):
                    state = path.stat()
                    key = path.relative_to(self.folder).as_posix()
                    files.append((key in self._kept, state.st_mtime_ns, state.st_size, key))
            self._arriving.append(size)
            total = sum(entry[2] for entry in files) + sum(self._arriving)
            for _, _, length, key in sorted(files):
                if total <= self.limit:
                    return
                if key != name:
                    self._mapped.pop(key, None)
                    with suppress(OSError):
                        (self.folder / key).unlink()
                        total -= length


class _Damaged(Exception):
    """What was fetched does not match its checksum."""


class CachedTokens:
    """Tokens `first` to `stop` of a file in a cache. Slices are arrays; the file is fetched when one is asked for."""

    def __init__(self, cache: ShardCache, name: str, dtype: np.dtype[Any], first: int, stop: int) -> None:
        self.cache, self.name, self.dtype, self.first, self.stop = cache, name, dtype, first, stop

    def __len__(self) -> int:
        return self.stop - self.first

    def __getitem__(self, key: slice) -> Ids:
        start, stop, _ = key.indices(len(self))
        return self.cache.array(self.name, self.dtype)[self.first + start : self.first + stop]

    def part(self, start: int, stop: int) -> CachedTokens:
        """Return a range of these tokens, without reading them."""
        start, stop, _ = slice(start, stop).indices(len(self))
        return CachedTokens(self.cache, self.name, self.dtype, self.first + start, self.first + max(start, stop))
