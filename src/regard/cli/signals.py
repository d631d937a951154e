"""Ctrl-C and SIGTERM on the command line: each raises an exception in the main thread, but never inside an import.

Python raises KeyboardInterrupt wherever the main thread happens to be. While a C extension is initialized, that
exception is often dropped or replaced by another one, and the signal is lost. Here a signal that arrives inside an
import waits until the outermost import has ended. This module imports little, since Python's own handlers are in force
until `exiting` or `handling` begins.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # importing `typing` would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Any

INTERVAL = 0.02  # seconds between checks whether an import has ended
PATIENCE = 3.0  # seconds that an import may go on before another signal ends the process


class Terminated(BaseException):
    """SIGTERM arrived. Like KeyboardInterrupt it passes `except Exception`, so that `finally` can clean up."""


EXCEPTIONS: dict[int, type[BaseException]] = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}
MESSAGES: dict[int, str] = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
# Only these are replaced: a signal that the parent ignores (as shells do for background jobs) stays ignored, and the
# handler of a program that calls us stays in force.
DEFAULTS: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class _Handler:
    """Raises the exception of a signal: at once, or after the import in which the signal arrived."""

    def __init__(self) -> None:
        self._main_thread = _thread.get_ident()
        self._pending: list[int] = []  # at most one; the thread that pops it delivers it
        self._since = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not _inside_import(frame or sys._getframe(1)):
            self._pending.clear()
            raise EXCEPTIONS[number]
        if not self._pending:
            self._defer(number)
        elif time.monotonic() - self._since > PATIENCE:
            _exit_now(number, frame)

    def _defer(self, number: int) -> None:
        self._since = time.monotonic()
        self._pending.append(number)
        _thread.start_new_thread(self._send_again, ())

    def _send_again(self) -> None:
        """Send the pending signal once the main thread is outside of any import."""
        time.sleep(INTERVAL)
        while self._pending and _inside_import(sys._current_frames().get(self._main_thread)):
            time.sleep(INTERVAL)
        with suppress(IndexError):
            # The signal itself and not its exception: a long job may have set its own handler by now.
            _send(self._main_thread, self._pending.pop())

    def raise_pending(self) -> None:
        with suppress(IndexError):
            raise EXCEPTIONS[self._pending.pop()]

    def unraisable(self, dropped: Any, otherwise: Callable[[Any], object]) -> None:
        """Called with an exception that Python drops, as it does in `__del__`: one of a signal is not dropped."""
        for number, kind in EXCEPTIONS.items():
            if dropped.exc_type is kind:
                if not self._pending:
                    self._defer(number)
                return
        otherwise(dropped)


@contextmanager
def handling() -> Iterator[None]:
    """Handle signals while the body runs, and leave the handlers as they were."""
    handler, hook = _Handler(), sys.unraisablehook
    before = _set_handlers(handler)
    try:
        try:
            yield
        finally:
            handler.raise_pending()
    finally:
        for number in before:
            signal.signal(number, DEFAULTS[number])
        if before:
            sys.unraisablehook = hook


@contextmanager
def exiting() -> Iterator[None]:
    """Handle signals to the end of the process. The body ends it; a signal gives the exit code 128 + its number.

    While the interpreter shuts down after the body, a signal ends the process at once.
    """
    handler = _Handler()
    handled = _set_handlers(handler)
    if handled:
        sys.excepthook = _end_quietly
    try:
        try:
            yield
        finally:
            handler.raise_pending()
    except (KeyboardInterrupt, Terminated) as error:
        number = next(number for number, kind in EXCEPTIONS.items() if isinstance(error, kind))
        _print_message(number)
        raise SystemExit(128 + number) from None
    finally:
        for number in handled:
            signal.signal(number, _exit_now)


def _set_handlers(handler: _Handler) -> list[int]:
    """Replace Python's own handlers; returns the handled signals. Only the main thread may do this."""
    handled = [number for number, default in DEFAULTS.items() if signal.getsignal(number) == default]
    try:
        for number in handled:
            signal.signal(number, handler)
    except ValueError:
        return []
    if handled:
        otherwise = sys.unraisablehook
        sys.unraisablehook = lambda dropped: handler.unraisable(dropped, otherwise)
    return handled


def _inside_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _send(thread: int, number: int) -> None:
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(thread, number)
    else:
        _thread.interrupt_main(signal.Signals(number))


def _exit_now(number: int, frame: FrameType | None) -> None:
    _print_message(number)
    os._exit(128 + number)


def _end_quietly(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Called with what nothing catches: a signal that arrives between the end of the body and that of the process."""
    for number, signal_kind in EXCEPTIONS.items():
        if issubclass(kind, signal_kind):
            _exit_now(number, None)
    sys.__excepthook__(kind, error, trace)


def _print_message(number: int) -> None:
    with suppress(OSError, ValueError, RuntimeError):  # a closed stream, or one in the middle of a line
        if sys.stderr is not None:
            print(MESSAGES[number], file=sys.stderr, flush=True)
