"""Answers that arrive in pieces: one JSON document per line, sent while the rest is still being computed.

A computation sends its pieces with a function that raises `ClientDisconnected` once the client has gone, so that it
ends with the reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from regard.errors import InputError, RegardError, suggest
from regard.files.json_files import json_text
from regard.server.arguments import Arguments, Payload
from regard.server.request_queue import ClientDisconnected, RequestQueue, check_connected
from regard.server.studio import Studio

if TYPE_CHECKING:
    from starlette.requests import Request

Stream = Callable[[Studio, Arguments, Callable[[Payload], None]], None]
MEDIA_TYPE = "application/x-ndjson"


def stream_endpoint(
    streams: Mapping[str, Stream],
    studio: Studio,
    queue: RequestQueue,
    *,
    read: Callable[[Request], Awaitable[dict[str, object]]],
    wait_disconnect: Callable[[Request], Awaitable[None]],
    tab: Callable[[Request], str],
    headers: Mapping[str, str],
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that answers with the pieces of a stream. An error before the first piece is raised; a later one is
    the last line: {"error": ...}."""

    async def endpoint(request: Request) -> Response:
        arguments, name = await read(request), request.path_params["name"]
        if name not in streams:
            raise InputError(f"the studio has no stream {name!r}; {suggest(name, streams)}")
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def send(piece: Payload) -> None:
            check_connected()
            loop.call_soon_threadsafe(lines.put_nowait, to_json(piece) + b"\n")

        compute = partial(_compute, streams[name], studio, arguments, send)
        computation = asyncio.ensure_future(queue.run(tab(request), compute, partial(wait_disconnect, request)))
        computation.add_done_callback(partial(_close, lines))
        try:
            first = await lines.get()
        except asyncio.CancelledError:
            computation.cancel()
            raise
        if first is None:
            computation.result()  # raises an error that came before the first piece
            lines.put_nowait(None)
        pieces = _pieces(first or b"", lines, computation)
        return StreamingResponse(pieces, media_type=MEDIA_TYPE, headers=dict(headers))

    return endpoint


async def _pieces(
    first: bytes, lines: asyncio.Queue[bytes | None], computation: asyncio.Future[None]
) -> AsyncIterator[bytes]:
    try:
        line: bytes | None = first
        while line is not None:
            yield line
            line = await lines.get()
        error = None if computation.cancelled() else computation.exception()
        if error is not None and not isinstance(error, ClientDisconnected):
            yield to_json({"error": str(error)}) + b"\n"
    finally:
        computation.cancel()


def _close(lines: asyncio.Queue[bytes | None], computation: asyncio.Future[None]) -> None:
    if not computation.cancelled():
        computation.exception()  # retrieved here, or asyncio would log it when the client has gone
    lines.put_nowait(None)


def _compute(stream: Stream, studio: Studio, arguments: Arguments, send: Callable[[Payload], None]) -> None:
    try:
        stream(studio, arguments, send)
    except ClientDisconnected:
        return
    except RegardError:
        raise
    except Exception as error:
        raise internal_error(error) from error


def internal_error(error: Exception) -> RegardError:
    """An unexpected exception as one line for the user: it must neither end the studio nor show a traceback."""
    return RegardError(f"internal error: {type(error).__name__}: {' '.join(str(error).split())}")


def to_json(document: Mapping[str, object]) -> bytes:
    """UTF-8, with lone surrogates escaped as JSON does it."""
    return json_text(document).encode("utf-8", "backslashreplace")
