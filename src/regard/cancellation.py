"""Cancellation: how a computation learns that nobody waits for its result any more.

Whoever starts a computation says with `run_cancellable` how that is found out. Loops that take long call
`check_cancelled`; every event of a verb (`regard.events.map_events`) and every forward pass for a client is a check.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import TypeVar

Answer = TypeVar("Answer")
should_stop: ContextVar[Callable[[], bool] | None] = ContextVar("should_stop", default=None)


class Cancelled(Exception):
    """Nobody waits for the result of this computation any more."""


def check_cancelled() -> None:
    """Raise Cancelled if the computation should stop."""
    stop = should_stop.get()
    if stop is not None and stop():
        raise Cancelled


def run_cancellable(stop: Callable[[], bool], compute: Callable[[], Answer]) -> Answer:
    """Run a computation that ends with Cancelled at its next check once `stop` returns True."""

    def run() -> Answer:
        should_stop.set(stop)
        return compute()

    return Context().run(run)
