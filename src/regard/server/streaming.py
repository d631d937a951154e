"""Answers that come in pieces: JSON, one document a line, sent while the rest is still being computed.

A computation sends its pieces with a function that raises `ClientDisconnected` once the client has gone, so that it
ends with the reader.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from regard.errors import InputError, RegardError, nearest
from regard.server.arguments import Arguments, Payload
from regard.server.model_registry import ModelRegistry
from regard.server.request_queue import ClientDisconnected, RequestQueue, check_connected

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["Stream", "stream_endpoint"]

Stream = Callable[[ModelRegistry, Arguments, Callable[[Payload], None]], None]
LINES = "application/x-ndjson"


def stream_endpoint(
    streams: Mapping[str, Stream],
    registry: ModelRegistry,
    queue: RequestQueue,
    *,
    read: Callable[[Request], Awaitable[dict[str, object]]],
    gone: Callable[[Request], Awaitable[None]],
    tab: Callable[[Request], str],
    headers: Mapping[str, str],
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that answers with the pieces of one of the streams. What is wrong before the first piece is raised;
    what goes wrong later is the last line: {"error": ...}."""

    async def endpoint(request: Request) -> Response:
        arguments, name = await read(request), request.path_params["name"]
        if name not in streams:
            raise InputError(f"the studio has no stream {name!r}; {nearest(name, streams)}")
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def tell(piece: Payload) -> None:
            check_connected()
            loop.call_soon_threadsafe(lines.put_nowait, _line(piece))

        compute = partial(_computed, streams[name], registry, arguments, tell)
        answering = asyncio.ensure_future(queue.answer(tab(request), compute, partial(gone, request)))
        answering.add_done_callback(partial(_ended, lines))
        try:
            first = await lines.get()
        except asyncio.CancelledError:
            answering.cancel()
            raise
        if first is None:
            answering.result()  # raises what went wrong before there was anything to send
            lines.put_nowait(None)
        return StreamingResponse(_pieces(first or b"", lines, answering), media_type=LINES, headers=dict(headers))

    return endpoint


async def _pieces(
    first: bytes, lines: asyncio.Queue[bytes | None], answering: asyncio.Future[None]
) -> AsyncIterator[bytes]:
    try:
        line: bytes | None = first
        while line is not None:
            yield line
            line = await lines.get()
        error = None if answering.cancelled() else answering.exception()
        if error is not None and not isinstance(error, ClientDisconnected):
            yield _line({"error": str(error)})
    finally:
        answering.cancel()


def _ended(lines: asyncio.Queue[bytes | None], answering: asyncio.Future[None]) -> None:
    if not answering.cancelled():
        answering.exception()  # looked at, lest it be complained of where the reader has left
    lines.put_nowait(None)


def _computed(stream: Stream, registry: ModelRegistry, arguments: Arguments, tell: Callable[[Payload], None]) -> None:
    try:
        stream(registry, arguments, tell)
    except ClientDisconnected:
        return  # nobody is there to be told, and nobody would look at the error
    except RegardError:
        raise
    except Exception as error:  # one bad question must not end the studio
        said = " ".join(str(error).split())
        raise RegardError(f"internal error: {type(error).__name__}: {said}") from error


def _line(piece: Payload) -> bytes:
    """Half a surrogate pair has no UTF-8; its escape is JSON's own."""
    text = json.dumps(piece, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"
