"""What a request may cost before it is understood: the size and the time of its body.

Knows ASGI messages. Knows no address and no view; what a connection may cost is in `connection`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from regard.errors import InputError, RegardError
from regard.server.memory import MemoryTrimmer
from regard.server.request_queue import ClientDisconnected, ServerBusy

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["RETRY_AFTER", "SECONDS", "BodyReader", "BodyTimeout", "BodyTooLarge"]

RETRY_AFTER = 2  # seconds after which to ask a busy studio again
SECONDS = 5.0  # that a body may take, and more only as it comes at RATE
RATE = 100_000  # bytes per second
EXCESS = 4_000_000  # bytes above the limit that are read and dropped, so that the client gets to read the answer
IN_FLIGHT = 32_000_000  # bytes of all bodies that are being received
LARGE = 250_000  # bytes of a body whose memory is given back to the system soon after


class BodyTooLarge(InputError):
    """The body has more bytes than its address takes."""


class BodyTimeout(RegardError):
    """The body did not arrive in time."""


class BodyReader:
    """Reads bodies, and bounds the memory of all that are being read. To be used from one event loop."""

    def __init__(self, *, seconds: float = SECONDS, in_flight: int = IN_FLIGHT) -> None:
        self.seconds, self.in_flight = seconds, in_flight
        self._held = 0
        self._trim = MemoryTrimmer(every=0.0)
        self._trimming = False

    async def read(self, request: Request, limit: int) -> bytes:
        """Return the whole body.

        Raises BodyTooLarge, BodyTimeout, ServerBusy when all bodies together take too much memory, and
        ClientDisconnected.
        """
        body, size = bytearray(), 0
        begin = asyncio.get_running_loop().time()
        try:
            while True:
                try:
                    async with asyncio.timeout_at(begin + self.seconds + size / RATE):
                        message = await request.receive()
                except TimeoutError:
                    raise BodyTimeout(
                        f"the body did not arrive in time: expected it within {self.seconds:g} seconds, got {size:,} "
                        "bytes of it. Send the request again"
                    ) from None
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                piece = message.get("body", b"")
                size += len(piece)
                if size <= limit:
                    body += piece
                    self._held += len(piece)
                    if self._held > self.in_flight:
                        raise ServerBusy("the studio is busy: it is receiving too much at once. Try again in a moment")
                if not message.get("more_body", False) or size > limit + EXCESS:
                    break
            if size > limit:
                raise BodyTooLarge(f"the request is too large; the studio takes at most {limit:,} bytes")
            return bytes(body)
        finally:
            self._held -= len(body)
            if size > LARGE and not self._trimming:
                self._trimming = True
                asyncio.get_running_loop().call_later(1.0, self._give_back)

    def _give_back(self) -> None:
        self._trimming = False
        self._trim()
