"""A client connection: uvicorn's HTTP/1.1 protocol with limits on time and number, and a close that loses no answer.

A silent client is disconnected, one with slow headers gets 408, one that does not read is aborted. Connections above
MAX_CONNECTIONS, or three quarters of them from one address, get 429. A request whose end a proxy might see elsewhere
gets 400, and its connection ends. However a connection ends, the server reads for a while what the client still sends:
when a socket is closed with unread bytes, the kernel drops the answer too. A client that ends only its sending side
gets its answer.
"""

from __future__ import annotations

import asyncio
import json
import re
from asyncio import TimerHandle
from http import HTTPStatus
from typing import Any

import h11
from h11._receivebuffer import ReceiveBuffer
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.engine.memory import MemoryTrimmer
from regard.server.errors import ClientDisconnected, RequestError, busy

RETRY_AFTER = 2  # seconds
TIMEOUT = 5.0  # seconds for a body; a longer one must arrive at MIN_BYTES_PER_SECOND
MIN_BYTES_PER_SECOND = 100_000
MAX_EXCESS_BYTES = 4_000_000  # beyond the limit, read and dropped so that the client can read the answer
MAX_BYTES_IN_FLIGHT = 32_000_000  # of all bodies that are being received
LARGE_BODY_BYTES = 250_000  # a body of this size is returned to the system soon after


class BodyReader:
    """Reads bodies and bounds the memory of all that are being read. Not thread-safe: use it from one event loop."""

    def __init__(self, *, timeout: float = TIMEOUT, max_in_flight: int = MAX_BYTES_IN_FLIGHT) -> None:
        self.timeout, self.max_in_flight = timeout, max_in_flight
        self._in_flight = 0
        self._trim = MemoryTrimmer(interval=0.0)
        self._trim_scheduled = False

    async def read(self, request: Request, limit: int) -> bytes:
        """Return the whole body. Raises ClientDisconnected, and RequestError when it is too large (413) or too slow
        (408), or when all bodies together take too much memory (429)."""
        body, size = bytearray(), 0
        start = asyncio.get_running_loop().time()
        try:
            while True:
                try:
                    async with asyncio.timeout_at(start + self.timeout + size / MIN_BYTES_PER_SECOND):
                        message = await request.receive()
                except TimeoutError:
                    raise RequestError(
                        408,
                        f"the body did not arrive in time: expected it within {self.timeout:g} seconds, got {size:,} "
                        "bytes of it. Send the request again",
                    ) from None
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                chunk = message.get("body", b"")
                size += len(chunk)
                if size <= limit:
                    body += chunk
                    self._in_flight += len(chunk)
                    if self._in_flight > self.max_in_flight:
                        raise busy("the server is busy: it is receiving too much at once. Try again in a moment")
                if not message.get("more_body", False) or size > limit + MAX_EXCESS_BYTES:
                    break
            if size > limit:
                raise RequestError(413, f"the request is too large; the server accepts at most {limit:,} bytes")
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
PROBE_SECONDS = 1.0  # between the questions whether a client that sends no more still waits for its answer

# Lines that end with a line feed alone or go on in the next line; and what may only be there once.
LOOSE_LINE = re.compile(rb"(?:^|[^\r])\n|\n[ \t]")
BODY_LENGTH = re.compile(rb"\n(?:content-length|transfer-encoding):([^\r]*)", re.IGNORECASE)

NOT_HTTP = (
    "this is not a valid request: expected header lines that end with CR LF and are not folded, among them Host and at "
    "most one of Content-Length and Transfer-Encoding: chunked"
)


class StrictBuffer(ReceiveBuffer):
    """h11's buffer of received bytes, without its tolerance: parsers that disagree on where a request ends let a client
    put a request of its own before that of another client of the same proxy (RFC 9112, section 11.2)."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        before = bytes(self)
        lines: list[bytearray] | None = super().maybe_extract_lines()
        if lines is not None:
            head = before[: len(before) - len(self)]
            lengths = BODY_LENGTH.findall(head)
            if LOOSE_LINE.search(head) or len(lengths) > 1 or any(b"," in length for length in lengths):
                raise h11.LocalProtocolError("folded header, bare line feed, or more than one length of the body")
        return lines


class EarlyClose(h11.Connection):
    """Says in the answer to a request whose body has not arrived yet that the connection ends with it: else a client
    may send its next request into a connection that is being closed."""

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override]
        if isinstance(event, h11.Response) and self.their_state is h11.SEND_BODY:
            headers = [(name, value) for name, value in event.headers if name != b"connection"]
            headers.append((b"connection", b"close"))
            event = h11.Response(status_code=event.status_code, headers=headers, reason=event.reason)
        return super().send(event)


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
        self._probe_timer: TimerHandle | None = None
        self.conn = EarlyClose(h11.SERVER, self.conn._max_incomplete_event_size)
        self.conn._receive_buffer = StrictBuffer()
        self._linger = _LingeringTransport(transport)
        super().connection_made(self._linger)
        limit = self.max_connections or MAX_CONNECTIONS
        if self._has_place(limit):
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self._on_header_timeout)
        elif len(self.connections) > 4 * limit:
            transport.abort()
        else:
            self._answer(HTTPStatus.TOO_MANY_REQUESTS, "the server has too many connections; try again in a moment")

    def _has_place(self, limit: int) -> bool:
        """Whether the server may hold this connection: `limit` in all, three quarters of them of one address. Those
        that it has refused and only lingers on do not count."""
        of_one_address = max(3 * limit // 4, 1)
        if len(self.connections) <= of_one_address:
            return True
        held = [one for one in self.connections if isinstance(one, Connection) and not one._linger.is_closing()]
        ours = sum(_address(one) == _address(self) for one in held)
        return len(held) <= limit and ours <= of_one_address

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

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more. It may have left, or half-closed the connection and wait: true keeps it open."""
        cycle = self.cycle
        if self._linger.is_closing() or self.conn.their_state not in (h11.DONE, h11.MUST_CLOSE) or cycle is None:
            return False
        self._linger.received_eof = True
        if cycle.response_started:  # the transport sends the rest of the answer before it closes
            return False
        self._probe_timer = self.loop.call_later(PROBE_SECONDS, self._probe)
        return True

    def _probe(self) -> None:
        """Send something that clients skip; the system of a client that has left answers with a reset, and the next
        write fails. HTTP/1.0 has nothing of the kind."""
        if not self.cycle.response_started and self.scope["http_version"] != "1.0":
            self._linger.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._probe_timer = self.loop.call_later(PROBE_SECONDS, self._probe)

    def connection_lost(self, exc: Exception | None) -> None:
        self._header_timer, self._write_timer = _cancel(self._header_timer), _cancel(self._write_timer)
        self._probe_timer = _cancel(self._probe_timer)
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
        left_over = self.conn.their_state is h11.SEND_BODY  # answered before the body arrived: nobody reads the rest
        if left_over or (self._linger.received_eof and self.cycle.response_complete):
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
            self._answer(HTTPStatus.BAD_REQUEST, NOT_HTTP)
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
        """Answer without the application, and close. The form is OpenAI's, whose clients read it."""
        busy = status is HTTPStatus.TOO_MANY_REQUESTS
        retry = f"retry-after: {RETRY_AFTER}\r\n" if busy else ""
        kind = "rate_limit_error" if busy else "invalid_request_error"
        body = json.dumps({"error": {"message": text, "type": kind, "param": None, "code": None}})
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n{retry}connection: close\r\n\r\n"
        )
        self._linger.write((head + body).encode("ascii"))
        self._linger.close()


class _LingeringTransport(asyncio.Transport):
    """A transport whose `close` ends the server's side, then reads and drops what still arrives, up to LINGER_BYTES and
    LINGER_SECONDS or until the client closes its side."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._bytes_left = LINGER_BYTES
        self._closing = False
        self.received_eof = False  # there is nothing left to read
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
        if self.received_eof:
            return self.close_idle()
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


def _address(connection: Connection) -> str:
    return connection.client[0] if connection.client else ""


def _cancel(timer: TimerHandle | None) -> TimerHandle | None:
    """Cancel a timer; returns None, to be stored in its place."""
    if timer is not None:
        timer.cancel()
    return None
