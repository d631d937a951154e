"""Gives memory that is free back to the system.

Knows the C library. What a question has used is free when it is answered, but the C library keeps it for the next one,
in each thread's own arena and around what is still in use: after thousands of questions that is hundreds of MB.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

__all__ = ["MemoryTrimmer"]

EVERY = 0.25  # seconds: walking through all of the memory takes up to a millisecond


class MemoryTrimmer:
    """Call it when something has ended. It does nothing where it has just been called, or the C library is not
    glibc."""

    def __init__(self, *, every: float = EVERY) -> None:
        self.every = every
        self._last = -every
        self._lock = threading.Lock()
        self._trim = _malloc_trim()

    def __call__(self) -> None:
        if self._trim is None or not self._lock.acquire(blocking=False):
            return
        try:
            if time.monotonic() >= self._last + self.every:
                self._trim(0)
                self._last = time.monotonic()
        finally:
            self._lock.release()


def _malloc_trim() -> Callable[[int], int] | None:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return found
