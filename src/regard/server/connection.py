"""A client connection: uvicorn's HTTP/1.1 protocol with limits on time and number, and a close that loses no answer.

A silent client is disconnected, one with slow headers gets 408, one that does not read is aborted. Connections above
MAX_CONNECTIONS get 429. However a connection ends, the server reads for a while what the client still sends: when a
socket is closed with unread bytes, the kernel drops the answer too.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.engine.memory import MemoryTrimmer
from regard.errors import InputError, RegardError
from regard.server.request_queue import ClientDisconnected, ServerBusy

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from starlette.requests import Request


RETRY_AFTER = 2  # seconds
TIMEOUT = 5.0  # seconds for a body; a longer one must arrive at MIN_BYTES_PER_SECOND
MIN_BYTES_PER_SECOND = 100_000
MAX_EXCESS_BYTES = 4_000_000  # beyond the limit, read and dropped so that the client can read the answer
MAX_BYTES_IN_FLIGHT = 32_000_000  # of all bodies that are being received
LARGE_BODY_BYTES = 250_000  # a body of this size is returned to the system soon after


class BodyTooLarge(InputError):
    """The body has more bytes than its address accepts."""


class BodyTimeout(RegardError):
    """The body did not arrive in time."""


class BodyReader:
    """Reads bodies and bounds the memory of all that are being read. Not thread-safe: use it from one event loop."""

    def __init__(self, *, timeout: float = TIMEOUT, max_in_flight: int = MAX_BYTES_IN_FLIGHT) -> None:
        self.timeout, self.max_in_flight = timeout, max_in_flight
        self._in_flight = 0
        self._trim = MemoryTrimmer(interval=0.0)
        self._trim_scheduled = False

    async def read(self, request: Request, limit: int) -> bytes:
        """Return the whole body.

        Raises BodyTooLarge, BodyTimeout, ServerBusy when all bodies together take too much memory, and
        ClientDisconnected.
        """
        body, size = bytearray(), 0
        start = asyncio.get_running_loop().time()
        try:
            while True:
                try:
                    async with asyncio.timeout_at(start + self.timeout + size / MIN_BYTES_PER_SECOND):
                        message = await request.receive()
                except TimeoutError:
                    raise BodyTimeout(
                        f"the body did not arrive in time: expected it within {self.timeout:g} seconds, got {size:,} "
                        "bytes of it. Send the request again"
                    ) from None
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                chunk = message.get("body", b"")
                size += len(chunk)
                if size <= limit:
                    body += chunk
                    self._in_flight += len(chunk)
                    if self._in_flight > self.max_in_flight:
                        raise ServerBusy("the server is busy: it is receiving too much at once. Try again in a moment")
                if not message.get("more_body", False) or size > limit + MAX_EXCESS_BYTES:
                    break
            if size > limit:
                raise BodyTooLarge(f"the request is too large; the server accepts at most {limit:,} bytes")
            return bytes(body)
        finally:
            self._in_flight -= len(body)
            if size > LARGE_BODY_BYTES and not self._trim_scheduled:
                self._trim_scheduled = True
                asyncio.get_running_loop().call_later(1.0, self._trim_memory)

    def _trim_memory(self) -> None:
        self._trim_scheduled = False
        self._trim()


MAX_CONNECTIONS = 128
HEADER_SECONDS = 5.0  # from a connection, or the first byte of its next request, to the end of the headers
WRITE_SECONDS = 30.0  # that a client may take to read the rest of an answer
LINGER_SECONDS = 2.0  # between the end of an answer and the end of the connection
LINGER_BYTES = 16_000_000  # read and dropped in this time


class Connection(H11Protocol):
    """uvicorn creates one for each client."""

    max_connections = 0  # 0: MAX_CONNECTIONS

    @staticmethod
    def shed(data: bytes, client: str) -> bytes | None:
        """The answer to a request before it is parsed, or None. A server that sheds load replaces this function."""
        return None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._header_timer: TimerHandle | None = None
        self._write_timer: TimerHandle | None = None
        self._linger = _LingeringTransport(transport)
        super().connection_made(self._linger)
        limit = self.max_connections or MAX_CONNECTIONS
        if len(self.connections) > 4 * limit:
            transport.abort()
        elif len(self.connections) > limit:
            self._answer(HTTPStatus.TOO_MANY_REQUESTS, "the server has too many connections; try again in a moment")
        else:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self._on_header_timeout)

    def data_received(self, data: bytes) -> None:
        if self._linger.is_closing():
            return self._linger.drop(len(data))
        if self._answer_at_once(data):
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE or self._linger.is_closing():
            self._header_timer = _cancel(self._header_timer)
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self._on_header_timeout)

    def _answer_at_once(self, data: bytes) -> bool:
        """Whether `data` is a request that `shed` has answered."""
        if self.conn.trailing_data[0] or self.conn.our_state is not h11.IDLE or self.conn.their_state is not h11.IDLE:
            return False
        answer = self.shed(data, f"{self.client[0]}:{self.client[1]}" if self.client else "")
        if answer is None:
            return False
        self._header_timer = _cancel(self._header_timer)
        self._unset_keepalive_if_required()
        self._linger.write(answer)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._header_timer, self._write_timer = _cancel(self._header_timer), _cancel(self._write_timer)
        self._linger.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        _cancel(self._write_timer)
        self._write_timer = self.loop.call_later(WRITE_SECONDS, self._linger.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_timer = _cancel(self._write_timer)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:  # answered before the body arrived: nobody will read the rest
            self._linger.close()

    def shutdown(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self._linger.close_idle()
        else:
            super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        if not self._linger.is_closing():
            self._linger.close_idle()

    def send_400_response(self, msg: str) -> None:
        """Called for bytes that are not HTTP; inside a body, the application then sees a disconnect."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._answer(HTTPStatus.BAD_REQUEST, msg)
        else:  # an answer is half sent: nothing else can be sent on this connection
            self._linger.close()

    def _on_header_timeout(self) -> None:
        self._header_timer = None
        if self._linger.is_closing():
            return
        if self.conn.trailing_data[0]:
            self._answer(HTTPStatus.REQUEST_TIMEOUT, f"the headers did not arrive within {HEADER_SECONDS:g} seconds")
        else:
            self._linger.abort()

    def _answer(self, status: HTTPStatus, text: str) -> None:
        """Answer without the application, and close."""
        retry = f"retry-after: {RETRY_AFTER}\r\n" if status is HTTPStatus.TOO_MANY_REQUESTS else ""
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(text)}\r\n{retry}connection: close\r\n\r\n"
        )
        self._linger.write((head + text).encode("ascii", "replace"))
        self._linger.close()


class _LingeringTransport(asyncio.Transport):
    """A transport whose `close` ends the server's side, then reads and drops what still arrives, up to LINGER_BYTES and
    LINGER_SECONDS or until the client closes its side."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._bytes_left = LINGER_BYTES
        self._closing = False
        self._timer: TimerHandle | None = None

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
        self._timer = loop.call_later(LINGER_SECONDS, self._end_lingering, loop.time() + WRITE_SECONDS)

    def close_idle(self) -> None:
        """Close at once a connection without a request; what the client has not yet read is still sent."""
        self.end()
        self._transport.close()

    def drop(self, count: int) -> None:
        self._bytes_left -= count
        if self._bytes_left < 0:
            self.abort()

    def abort(self) -> None:
        self.end()
        self._transport.abort()

    def end(self) -> None:
        self._closing, self._timer = True, _cancel(self._timer)

    def _end_lingering(self, deadline: float) -> None:
        """Close, unless the client is still reading the answer."""
        loop = asyncio.get_running_loop()
        if self._transport.get_write_buffer_size() and loop.time() < deadline:
            self._timer = loop.call_later(LINGER_SECONDS, self._end_lingering, deadline)
        else:
            self.abort()


def _cancel(timer: TimerHandle | None) -> TimerHandle | None:
    """Cancel a timer; returns None, to be stored in its place."""
    if timer is not None:
        timer.cancel()
    return None
