"""Verbs in the process of the studio: worker threads run them, in turns between the tabs of browsers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from regard.cancellation import Cancelled
from regard.errors import RegardError
from regard.events import Event, drain
from regard.server.http.connection import BodyReader
from regard.server.http.endpoint import Call, Gate, Limits, wait_disconnect
from regard.server.models.client_verbs import encode, encode_result
from regard.server.protocols.verbs import Form
from regard.server.studio.request_queue import RequestQueue

if TYPE_CHECKING:
    from starlette.requests import Request

    from regard.render.result import Result
    from regard.server.studio.studio import Studio

Answer = TypeVar("Answer")
RunVerb = Callable[["Studio", str, Mapping[str, object]], Generator[Event, None, "Result"]]
TAB_HEADER = "x-regard-tab"  # names the tab; requests without it share one


class TabGate(Gate):
    """Refuses a request while too many of its tab wait, before its body is read."""

    def __init__(self, limits: Limits, body_reader: BodyReader, queue: RequestQueue) -> None:
        super().__init__(limits, body_reader)
        self.queue = queue

    @contextmanager
    def admit(self, call: Call) -> Iterator[None]:
        self.queue.check_capacity(tab_of(call.request))
        yield


class StudioVerbs:
    """A `VerbRunner` over the models of a studio."""

    def __init__(self, studio: Studio, queue: RequestQueue, run_verb: RunVerb) -> None:
        self.studio, self.queue, self.run_verb = studio, queue, run_verb

    async def run(self, name: str, arguments: Mapping[str, Any], form: Form, call: Call) -> bytes:
        return await self._compute(name, arguments, form, call, lambda event: None)

    async def events(self, name: str, arguments: Mapping[str, Any], call: Call) -> AsyncIterator[tuple[bool, bytes]]:
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()

        def send(event: Event) -> None:
            loop.call_soon_threadsafe(lines.put_nowait, encode(event.model_dump(mode="json")))

        computation = asyncio.ensure_future(self._compute(name, arguments, "events", call, send))
        computation.add_done_callback(partial(_close, lines))
        try:
            while (line := await lines.get()) is not None:
                yield False, line
            yield True, computation.result()
        finally:
            computation.cancel()

    async def _compute(
        self, name: str, arguments: Mapping[str, Any], form: Form, call: Call, on_event: Callable[[Event], None]
    ) -> bytes:
        def compute() -> bytes:
            return encode_result(drain(self.run_verb(self.studio, name, arguments), on_event), form)

        work = partial(with_plain_errors, compute)
        return await self.queue.run(tab_of(call.request), work, partial(wait_disconnect, call.request))


def tab_of(request: Request) -> str:
    return request.headers.get(TAB_HEADER, "")[:64]


def with_plain_errors(compute: Callable[[], Answer]) -> Answer:
    """An unexpected exception becomes one line for the user: it must neither end the studio nor show a traceback."""
    try:
        return compute()
    except (RegardError, Cancelled):
        raise
    except Exception as error:
        message = " ".join(str(error).split())
        raise RegardError(f"internal error: {type(error).__name__}: {message}") from error


def _close(lines: asyncio.Queue[bytes | None], computation: asyncio.Future[Any]) -> None:
    if not computation.cancelled():
        computation.exception()  # retrieved here, or asyncio would log it when the client has gone
    lines.put_nowait(None)
