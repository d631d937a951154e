"""One client's connection: uvicorn's HTTP/1.1 with limits on time and number, and an end that loses no answer.

Knows sockets and uvicorn's protocol class. Knows no address and no view. A client that is silent is closed, one whose
headers are slow gets 408, one that does not read is cut off. Connections above MOST get 429. Whatever ends a
connection, what the client is still sending is read for a while: a socket that is closed over unread bytes makes the
kernel drop the answer too.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.server.body_reader import RETRY_AFTER

if TYPE_CHECKING:
    from asyncio import TimerHandle

__all__ = ["MOST", "Connection"]

MOST = 128  # connections
HEADER_SECONDS = 5.0  # from a connection, or the first byte of its next request, to the end of the headers
WRITE_SECONDS = 30.0  # that a client may take to make room for the rest of an answer
LINGER_SECONDS = 2.0  # between the end of an answer and that of the connection
LINGER_BYTES = 16_000_000  # that are read and dropped in this time


class Connection(H11Protocol):
    """As uvicorn makes one for each client."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._headers_due: TimerHandle | None = None
        self._reading_due: TimerHandle | None = None
        self._lingering = _Lingering(transport)
        super().connection_made(self._lingering)
        if len(self.connections) > 4 * MOST:
            transport.abort()
        elif len(self.connections) > MOST:
            self._answer(HTTPStatus.TOO_MANY_REQUESTS, "the studio has too many connections; try again in a moment")
        else:
            self._headers_due = self.loop.call_later(HEADER_SECONDS, self._headers_are_late)

    def data_received(self, data: bytes) -> None:
        if self._lingering.is_closing():
            return self._lingering.drop(len(data))
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE or self._lingering.is_closing():
            self._headers_due = _cancelled(self._headers_due)
        elif self._headers_due is None:
            self._headers_due = self.loop.call_later(HEADER_SECONDS, self._headers_are_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_due, self._reading_due = _cancelled(self._headers_due), _cancelled(self._reading_due)
        self._lingering.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        _cancelled(self._reading_due)
        self._reading_due = self.loop.call_later(WRITE_SECONDS, self._lingering.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reading_due = _cancelled(self._reading_due)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:  # answered before the body was there: nobody will read the rest
            self._lingering.close()

    def shutdown(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self._lingering.close_idle()
        else:
            super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        if not self._lingering.is_closing():
            self._lingering.close_idle()

    def send_400_response(self, msg: str) -> None:
        """Called where the bytes are no HTTP; also within a body, whose application then sees the client leave."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._answer(HTTPStatus.BAD_REQUEST, msg)
        else:  # an answer is half sent: nothing else can be said on this connection
            self._lingering.close()

    def _headers_are_late(self) -> None:
        self._headers_due = None
        if self._lingering.is_closing():
            return
        if self.conn.trailing_data[0]:
            self._answer(HTTPStatus.REQUEST_TIMEOUT, f"the headers did not arrive within {HEADER_SECONDS:g} seconds")
        else:
            self._lingering.abort()

    def _answer(self, status: HTTPStatus, text: str) -> None:
        """Answer without the application, and close."""
        again = f"retry-after: {RETRY_AFTER}\r\n" if status is HTTPStatus.TOO_MANY_REQUESTS else ""
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(text)}\r\n{again}connection: close\r\n\r\n"
        )
        self._lingering.write((head + text).encode("ascii", "replace"))
        self._lingering.close()


class _Lingering(asyncio.Transport):
    """A transport whose `close` ends our side, then reads and drops what still comes, up to LINGER_BYTES and
    LINGER_SECONDS or until the client closes its side."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._left = LINGER_BYTES
        self._closing = False
        self._due: TimerHandle | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def write(self, data: Any) -> None:
        if not self.is_closing():
            self._transport.write(data)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._closing or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing():
            return
        self._closing = True
        self._transport.write_eof()
        self._transport.resume_reading()
        loop = asyncio.get_running_loop()
        self._due = loop.call_later(LINGER_SECONDS, self._end_lingering, loop.time() + WRITE_SECONDS)

    def close_idle(self) -> None:
        """Close at once, where the client has nothing under way; what it has not yet read is still sent."""
        self.end()
        self._transport.close()

    def drop(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            self.abort()

    def abort(self) -> None:
        self.end()
        self._transport.abort()

    def end(self) -> None:
        self._closing, self._due = True, _cancelled(self._due)

    def _end_lingering(self, at_latest: float) -> None:
        """Time is up, unless the client still reads the answer."""
        loop = asyncio.get_running_loop()
        if self._transport.get_write_buffer_size() and loop.time() < at_latest:
            self._due = loop.call_later(LINGER_SECONDS, self._end_lingering, at_latest)
        else:
            self.abort()


def _cancelled(timer: TimerHandle | None) -> TimerHandle | None:
    """What takes the place of a timer that is no longer needed: none."""
    if timer is not None:
        timer.cancel()
    return None
