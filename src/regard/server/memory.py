"""Memory that a long-running process returns to the operating system, where the C library is glibc."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

INTERVAL_SECONDS = 0.25  # trimming takes up to a millisecond
M_ARENA_MAX = -8  # the number of this setting in malloc.h


def use_one_arena() -> None:
    """Let all threads allocate from one heap. Call it before they start.

    By default every thread has its own, and keeps what its largest request needed.
    """
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


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


def _function(name: str) -> Any:
    """A function of the C library, or None where it has none of this name."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
