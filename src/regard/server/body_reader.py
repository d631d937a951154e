"""Reads request bodies with limits on size, time and total memory. Limits on connections are in `connection`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from regard.errors import InputError, RegardError
from regard.server.memory import MemoryTrimmer
from regard.server.request_queue import ClientDisconnected, ServerBusy

if TYPE_CHECKING:
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
                        raise ServerBusy("the studio is busy: it is receiving too much at once. Try again in a moment")
                if not message.get("more_body", False) or size > limit + MAX_EXCESS_BYTES:
                    break
            if size > limit:
                raise BodyTooLarge(f"the request is too large; the studio accepts at most {limit:,} bytes")
            return bytes(body)
        finally:
            self._in_flight -= len(body)
            if size > LARGE_BODY_BYTES and not self._trim_scheduled:
                self._trim_scheduled = True
                asyncio.get_running_loop().call_later(1.0, self._trim_memory)

    def _trim_memory(self) -> None:
        self._trim_scheduled = False
        self._trim()
