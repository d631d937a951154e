"""Schedules requests onto a few worker threads, fairly between browser tabs, and drops those whose client has gone.

Depends on neither HTTP nor views. The worker threads are few and permanent: each new thread would keep an allocator
arena of its own that is never returned, and start its own threads for tensor operations.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

from regard.cancellation import Cancelled, check_cancelled, run_cancellable, should_stop
from regard.engine.memory import MemoryTrimmer
from regard.errors import RegardError

if TYPE_CHECKING:
    from torch import nn


Answer = TypeVar("Answer")
WORKER_NAME = "regard-request"  # name of the worker threads
SMALL_MODEL = 150_000_000  # parameters
POLL_SECONDS = 0.1  # between two checks whether a client that waits for a model has gone


class ServerBusy(RegardError):
    """Too many requests are waiting."""


class ClientDisconnected(Cancelled):
    """The client that sent the request has closed its connection."""


@dataclass(eq=False)
class _Request:
    tab: str
    turn: asyncio.Future[None]
    started: bool = False
    disconnected: threading.Event = field(default_factory=threading.Event)


class RequestQueue:
    """Runs at most `max_running` requests at once, `max_running_per_tab` of one tab; waiting tabs take turns.

    At most `max_waiting` requests wait, `max_waiting_per_tab` of one tab. Not thread-safe: use it from one event loop.
    """

    def __init__(
        self,
        *,
        max_running: int = 4,
        max_running_per_tab: int = 2,
        max_waiting: int = 12,
        max_waiting_per_tab: int = 8,
    ) -> None:
        self.max_running, self.max_running_per_tab = max_running, max_running_per_tab
        self.max_waiting, self.max_waiting_per_tab = max_waiting, max_waiting_per_tab
        self._waiting: dict[str, deque[_Request]] = {}  # the tab to serve next comes first
        self._running: Counter[str] = Counter()
        self._workers = _Workers(max_running)

    def close(self) -> None:
        """End the idle worker threads; a busy one ends after its request."""
        self._workers.close()

    def check_capacity(self, tab: str) -> None:
        """Raise ServerBusy when too many requests wait. Call it before any work goes into a request."""
        own = len(self._waiting.get(tab, ()))
        if own >= self.max_waiting_per_tab:
            raise ServerBusy(f"the studio is busy: {own} requests of this tab are waiting. Try again in a moment")
        if sum(map(len, self._waiting.values())) >= self.max_waiting:
            raise ServerBusy(f"the studio is busy: {self.max_waiting} requests are waiting. Try again in a moment")

    async def run(
        self, tab: str, compute: Callable[[], Answer], wait_disconnect: Callable[[], Awaitable[None]]
    ) -> Answer:
        """Run `compute` in a worker thread when it is this tab's turn, and return its result.

        Raises ServerBusy when too many requests wait, and ClientDisconnected as soon as `wait_disconnect` returns; the
        computation then stops at its next check.
        """
        request = _Request(tab, asyncio.get_running_loop().create_future())
        self._enqueue(request)
        disconnect = asyncio.ensure_future(wait_disconnect())
        try:
            await asyncio.wait([request.turn, disconnect], return_when=asyncio.FIRST_COMPLETED)
            if not request.turn.done() or disconnect.done():
                raise ClientDisconnected
            request.started = True
            computation = asyncio.ensure_future(self._compute(request, compute))
            computation.add_done_callback(_retrieve_exception)
            await asyncio.wait([computation, disconnect], return_when=asyncio.FIRST_COMPLETED)
            if disconnect.done():
                raise ClientDisconnected
            return computation.result()
        finally:
            request.disconnected.set()
            disconnect.cancel()
            if not request.started:
                self._withdraw(request)

    async def _compute(self, request: _Request, compute: Callable[[], Answer]) -> Answer:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()

        def work() -> None:
            try:
                resolve = partial(answer.set_result, run_cancellable(request.disconnected.is_set, compute))
            except BaseException as error:
                resolve = partial(answer.set_exception, error)
            with suppress(RuntimeError):  # the event loop has been closed meanwhile
                loop.call_soon_threadsafe(lambda: None if answer.done() else resolve())

        self._workers.submit(work)
        try:
            return await answer
        finally:
            self._finish(request)

    def _enqueue(self, request: _Request) -> None:
        self.check_capacity(request.tab)
        self._waiting.setdefault(request.tab, deque()).append(request)
        self._start_next()

    def _withdraw(self, request: _Request) -> None:
        """Remove a request that was not started from its line, or give back the turn it got and did not use."""
        if request.turn.done():
            return self._finish(request)
        line = self._waiting[request.tab]
        line.remove(request)
        if not line:
            del self._waiting[request.tab]

    def _finish(self, request: _Request) -> None:
        self._running[request.tab] -= 1
        self._running += Counter()  # drops tabs with a count of 0
        self._start_next()

    def _start_next(self) -> None:
        while self._running.total() < self.max_running:
            tab = next((one for one in self._waiting if self._running[one] < self.max_running_per_tab), None)
            if tab is None:
                return
            line = self._waiting.pop(tab)
            request = line.popleft()
            if line:
                self._waiting[tab] = line  # at the end, so that other tabs come first
            self._running[tab] += 1
            request.turn.set_result(None)


class _Workers:
    """At most `count` daemon threads, started on demand: an endless computation must not keep the process alive."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._threads: list[threading.Thread] = []
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._trim = MemoryTrimmer()

    def submit(self, work: Callable[[], None]) -> None:
        if len(self._threads) < self.count:
            self._threads.append(threading.Thread(target=self._run, name=WORKER_NAME, daemon=True))
            self._threads[-1].start()
        self._work.put(work)

    def close(self) -> None:
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join(POLL_SECONDS)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            Context().run(work)
            del work  # and with it everything the request refers to
            self._trim()


@contextmanager
def acquire(lock: threading.Lock) -> Iterator[None]:
    """Hold the lock; raise Cancelled when the client goes before it is free."""
    while not lock.acquire(timeout=POLL_SECONDS):
        check_cancelled()
    try:
        check_cancelled()
        yield
    finally:
        lock.release()


def use_threads(num_parameters: int, *, threads: int = 0) -> None:
    """Set the number of threads that tensor operations of this request use; outside of a worker thread do nothing.

    0 chooses: one for a small model, all for a larger one. Threads of several requests that wait for each other on busy
    cores make all of them many times slower, and a sentence in a small model gains nothing from a second thread.
    PyTorch keeps the number per calling thread for its own operations, and MKL one number for the process: the request
    that began last decides it, which matters only while a large and a small model compute at the same time.
    """
    import torch

    if should_stop.get() is not None:
        available = _available_threads()  # before the first change
        torch.set_num_threads(threads or (1 if num_parameters <= SMALL_MODEL else available))


@cache
def _available_threads() -> int:
    import torch

    return torch.get_num_threads()


@contextmanager
def interruptible(model: nn.Module) -> Iterator[None]:
    """Make the model raise Cancelled at its next forward pass once the client has gone.

    The hooks are on the modules around the layers, such as the embeddings, which every forward pass and every decoding
    step calls. The layers themselves carry no hooks: only then does a decoder use its fast path.
    """
    stop = should_stop.get()
    if stop is None:
        yield
        return

    def check(module: nn.Module, inputs: object) -> None:
        if stop():  # a thread of torch has no context
            raise Cancelled

    hooks = [part.register_forward_pre_hook(check) for part in _modules_around_layers(model)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _modules_around_layers(model: nn.Module) -> Iterator[nn.Module]:
    from regard.nn.stack import Stack

    if not isinstance(model, Stack):
        yield model
        for child in model.children():
            yield from _modules_around_layers(child)


def _retrieve_exception(computation: asyncio.Future[Answer]) -> None:
    """Without a client nobody reads the exception, and asyncio would log it as never retrieved."""
    if not computation.cancelled():
        computation.exception()
