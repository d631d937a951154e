"""Returns free memory to the operating system.

The C library keeps what a request has freed in the arena of its thread; after thousands of requests that is hundreds of
megabytes.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

INTERVAL_SECONDS = 0.25  # trimming takes up to a millisecond


class MemoryTrimmer:
    """Call it when a piece of work has ended. Does nothing more often than `interval`, or where the C library is not
    glibc."""

    def __init__(self, *, interval: float = INTERVAL_SECONDS) -> None:
        self.interval = interval
        self._last = -interval
        self._lock = threading.Lock()
        self._trim = _malloc_trim()

    def __call__(self) -> None:
        if self._trim is None or not self._lock.acquire(blocking=False):
            return
        try:
            if time.monotonic() >= self._last + self.interval:
                self._trim(0)
                self._last = time.monotonic()
        finally:
            self._lock.release()


def _malloc_trim() -> Callable[[int], int] | None:
    try:
        function: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return function
