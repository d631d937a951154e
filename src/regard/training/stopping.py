"""What ends a long job early: Ctrl-C and SIGTERM, or functions that its caller gives, which see every event.

The first signal requests a stop between two steps, the second stops at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

import numpy as np

from regard.events import Event

Callback = Callable[[Event], object]


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


class Callbacks:
    """Calls each function with every event. One that returns True ends the training after the current epoch.

    The best epoch so far is kept, as with early stopping. An exception of a function ends the run at once.
    """

    def __init__(self, functions: Iterable[Callback] = ()) -> None:
        self.functions = tuple(functions)
        self.stop = False

    def on_event(self, event: Event) -> Event:
        for function in self.functions:
            returned = function(event)
            self.stop = self.stop or (isinstance(returned, bool | np.bool_) and bool(returned))
        return event
