"""Whose question is computed next: a few at once, tab after tab, and none whose asker has left.

Knows questions, tabs and threads. Knows no HTTP, no view and no model but by `stopping`, which makes one look between
its passes whether its answer is still wanted. The threads are few and stay: each new one would have memory of its own
that is never given back, and start threads of its own for the tensors.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from regard.errors import RegardError
from regard.server.memory import MemoryTrimmer

if TYPE_CHECKING:
    from torch import nn

__all__ = ["WORKER", "ClientDisconnected", "RequestQueue", "ServerBusy", "check_connected", "stopping", "taken"]

Answer = TypeVar("Answer")
WORKER = "regard-question"  # the name of a thread that computes answers
POLL = 0.1  # seconds between two looks whether somebody who waits for a model has left

_left: ContextVar[threading.Event | None] = ContextVar("left", default=None)


class ServerBusy(RegardError):
    """Too many questions are waiting."""


class ClientDisconnected(Exception):
    """Nobody waits for the answer any more."""


@dataclass(eq=False)
class _Question:
    tab: str
    turn: asyncio.Future[None]
    begun: bool = False
    left: threading.Event = field(default_factory=threading.Event)


class RequestQueue:
    """At most `at_once` questions are computed, `a_tab` of one tab; others wait, and tabs take turns.

    At most `waiting` questions wait, `waiting_a_tab` of one tab. To be used from one event loop.
    """

    def __init__(self, *, at_once: int = 4, a_tab: int = 2, waiting: int = 12, waiting_a_tab: int = 8) -> None:
        self.at_once, self.a_tab = at_once, a_tab
        self.waiting, self.waiting_a_tab = waiting, waiting_a_tab
        self._lines: dict[str, deque[_Question]] = {}  # the tab that is served next comes first
        self._computed: Counter[str] = Counter()
        self._workers = _Workers(at_once)

    def close(self) -> None:
        """End the threads that compute nothing; one that does ends when it is done."""
        self._workers.close()

    def check_room(self, tab: str) -> None:
        """ServerBusy where too many wait: to be asked before any work is put into a question."""
        own = len(self._lines.get(tab, ()))
        if sum(map(len, self._lines.values())) >= self.waiting or own >= self.waiting_a_tab:
            raise ServerBusy(f"the studio is busy: {self._told(own)}. Try again in a moment")

    async def answer(self, tab: str, compute: Callable[[], Answer], gone: Callable[[], Awaitable[None]]) -> Answer:
        """What `compute` gives, in a thread, when it is this tab's turn.

        Raises ServerBusy when too many requests wait, and ClientDisconnected as soon as `gone` returns; the
        computation then stops at its next check.
        """
        question = _Question(tab, asyncio.get_running_loop().create_future())
        self._join(question)
        leaving = asyncio.ensure_future(gone())
        try:
            await asyncio.wait([question.turn, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not question.turn.done() or leaving.done():
                raise ClientDisconnected
            question.begun = True
            computing = asyncio.ensure_future(self._compute(question, compute))
            await asyncio.wait([computing, leaving], return_when=asyncio.FIRST_COMPLETED)
            if computing.done():
                return computing.result()
            computing.add_done_callback(_ignored)
            raise ClientDisconnected
        finally:
            question.left.set()
            leaving.cancel()
            if not question.begun:
                self._leave(question)

    async def _compute(self, question: _Question, compute: Callable[[], Answer]) -> Answer:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()

        def work() -> None:
            _left.set(question.left)
            try:
                tell = partial(answer.set_result, compute())
            except BaseException as error:
                tell = partial(answer.set_exception, error)
            with suppress(RuntimeError):  # the studio has ended meanwhile
                loop.call_soon_threadsafe(lambda: None if answer.done() else tell())

        self._workers.submit(work)
        try:
            return await answer
        finally:
            self._end(question)

    def _join(self, question: _Question) -> None:
        self.check_room(question.tab)
        self._lines.setdefault(question.tab, deque()).append(question)
        self._advance()

    def _told(self, own: int) -> str:
        if own >= self.waiting_a_tab:
            return f"{own} questions of this tab wait already"
        return f"{self.waiting} questions wait already"

    def _leave(self, question: _Question) -> None:
        """The line, or a turn that was given and not used."""
        if question.turn.done():
            return self._end(question)
        line = self._lines[question.tab]
        line.remove(question)
        if not line:
            del self._lines[question.tab]

    def _end(self, question: _Question) -> None:
        self._computed[question.tab] -= 1
        self._computed += Counter()  # forgets tabs that have none
        self._advance()

    def _advance(self) -> None:
        while self._computed.total() < self.at_once:
            tab = next((one for one in self._lines if self._computed[one] < self.a_tab), None)
            if tab is None:
                return
            line = self._lines.pop(tab)
            question = line.popleft()
            if line:
                self._lines[tab] = line  # at the end: the others come first
            self._computed[tab] += 1
            question.turn.set_result(None)


class _Workers:
    """At most `count` threads, started with the first questions. They are daemons: one that computes for ever must not
    keep the program from ending."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._threads: list[threading.Thread] = []
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._trim = MemoryTrimmer()

    def submit(self, work: Callable[[], None]) -> None:
        if len(self._threads) < self.count:
            self._threads.append(threading.Thread(target=self._run, name=WORKER, daemon=True))
            self._threads[-1].start()
        self._work.put(work)

    def close(self) -> None:
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join(POLL)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            Context().run(work)
            del work  # with all that the question held
            self._trim()


def check_connected() -> None:
    """ClientDisconnected where the question that this thread computes is no longer wanted; nothing elsewhere."""
    left = _left.get()
    if left is not None and left.is_set():
        raise ClientDisconnected


@contextmanager
def taken(lock: threading.Lock) -> Iterator[None]:
    """The lock, unless who asked leaves before it is free."""
    while not lock.acquire(timeout=POLL):
        check_connected()
    try:
        check_connected()
        yield
    finally:
        lock.release()


@contextmanager
def stopping(model: nn.Module) -> Iterator[None]:
    """Have a model raise ClientDisconnected at its next pass once nobody waits for the answer.

    What looks are the modules around the layers, such as the embeddings, through which every pass and every step of a
    decoder goes. The layers themselves stay unwatched: a decoder takes its quick way only then.
    """
    left = _left.get()
    if left is None:
        yield
        return

    def look(module: nn.Module, inputs: object) -> None:
        if left.is_set():
            raise ClientDisconnected

    hooks = [part.register_forward_pre_hook(look) for part in _around(model)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _around(model: nn.Module) -> Iterator[nn.Module]:
    from regard.nn.stack import Stack

    if not isinstance(model, Stack):
        yield model
        for child in model.children():
            yield from _around(child)


def _ignored(computing: asyncio.Future[Answer]) -> None:
    """Nobody waits for what came out, and an error that nobody has looked at would be complained of."""
    if not computing.cancelled():
        computing.exception()
