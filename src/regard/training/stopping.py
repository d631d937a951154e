"""Ctrl-C and SIGTERM in a long job: the first requests a stop between two steps, the second stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether a stop was requested, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._handlers: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    @property
    def requested(self) -> bool:
        return self.signal is not None

    def deliver(self) -> None:
        """Do what the signal would have done at once; nothing if none came."""
        if self.signal is None:
            return
        handler = self._handlers.get(self.signal)
        if callable(handler):
            handler(self.signal, None)
        raise SystemExit(128 + self.signal)


@contextmanager
def stopping() -> Iterator[Stop]:
    """Defer signals while the body runs; only in the main thread."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request_stop(number: int, frame: FrameType | None) -> None:
        if stop.signal is None:
            stop.signal = number
            return
        handler = stop._handlers.get(stop.signal)
        if not callable(handler):
            raise SystemExit(128 + stop.signal)
        handler(stop.signal, frame)  # may return and raise later: the command line's handler does during an import

    # A signal that is ignored, such as Ctrl-C in a background job, stays ignored.
    deferred = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    stop._handlers = {number: signal.signal(number, request_stop) for number in deferred}
    try:
        yield stop
    finally:
        for number, handler in stop._handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
