"""Ctrl-C and SIGTERM in a long job: the first asks it to stop where its state is whole, the second stops it at once.

Knows signals. Knows nothing of what the job is.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Stop", "stopping"]


class Stop:
    """Whether someone asked to stop, and with which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._usual: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    @property
    def asked(self) -> bool:
        return self.signal is not None

    def now(self) -> None:
        """Do what the signal would have done at once; nothing where none came."""
        if self.signal is None:
            return
        usual = self._usual.get(self.signal)
        if callable(usual):
            usual(self.signal, None)
        raise SystemExit(128 + self.signal)


@contextmanager
def stopping() -> Iterator[Stop]:
    """Hold signals back while the body runs. Only the main thread may."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.signal is None:
            stop.signal = number
            return
        usual = stop._usual.get(stop.signal)
        if not callable(usual):
            raise SystemExit(128 + stop.signal)
        usual(stop.signal, frame)  # may return, to raise later: the command line's handler does so inside an import

    # A signal that is ignored, as Ctrl-C is by a job in the background, stays so.
    held = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    stop._usual = {number: signal.signal(number, ask) for number in held}
    try:
        yield stop
    finally:
        for number, usual in stop._usual.items():
            signal.signal(number, usual if usual is not None else signal.SIG_DFL)
