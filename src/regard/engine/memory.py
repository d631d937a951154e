"""What glibc keeps for the next tensors and what it returns to the system; other C libraries are left as they are.

And a limit for the compiled kernels that oneDNN keeps.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from functools import cache
from typing import Any

INTERVAL_SECONDS = 0.25  # trimming takes up to a millisecond
KEPT_BYTES = 1 << 28
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # parameters of glibc's mallopt
CAPACITY = 16  # kernels: those of the last four sizes of batches
VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")  # oneDNN's own cache, and that of PyTorch


@cache
def reuse_freed_memory() -> bool:
    """Make glibc keep the memory of freed tensors for the next ones, up to 256 MB, instead of returning it at once.

    Getting a page from the system again costs more than the operation that fills it.
    """
    return _set(M_MMAP_THRESHOLD, KEPT_BYTES) and _set(M_TRIM_THRESHOLD, KEPT_BYTES)


def use_one_arena() -> bool:
    """Let all threads allocate from one heap. Call it before they start.

    By default every thread has its own, and keeps what its largest request needed.
    """
    return _set(M_ARENA_MAX, 1)


class MemoryTrimmer:
    """Call it when a piece of work has ended. Does nothing more often than `interval`."""

    def __init__(self, *, interval: float = INTERVAL_SECONDS) -> None:
        self.interval = interval
        self._last = -interval
        self._lock = threading.Lock()
        self._trim = _function("malloc_trim")

    def __call__(self) -> None:
        if self._trim is None or not self._lock.acquire(blocking=False):
            return
        try:
            if time.monotonic() >= self._last + self.interval:
                self._trim(0)
                self._last = time.monotonic()
        finally:
            self._lock.release()


def limit_kernel_cache() -> None:
    """Limit the cache in this process and those that it starts; variables that are set stay.

    oneDNN compiles its kernels for a number of rows and keeps 1,024 of them, of half a megabyte each. Compiling one
    again takes about 0.2 ms. Must be called before the first product of torch, so only programs of Regard call it.
    """
    for name in VARIABLES:
        os.environ.setdefault(name, str(CAPACITY))


def _set(parameter: int, value: int) -> bool:
    mallopt = _function("mallopt")
    return mallopt is not None and bool(mallopt(parameter, value))


def _function(name: str) -> Any:
    """A function of the C library, or None where it has none of this name."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
