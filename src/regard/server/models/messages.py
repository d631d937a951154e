"""Messages between the server and the process of a model: frames of built-in values over a socket.

A frame is its length (4 bytes) and a value in Python's marshal format: numbers, strings, bytes, tuples, lists and
dictionaries only, so a message can never hold code; vectors travel as the bytes of a float32 array. To the process go
requests `(number, client, operation, arguments)`; back come lists of replies `(number, state, payload, timing)`.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

LENGTH = struct.Struct("<I")
MAX_FRAME_BYTES = 1 << 30
State = Literal["ready", "failed", "event", "done", "error", "batch"]


class Timing(NamedTuple):
    """Seconds that a request spent in each stage, its number of tokens, and what the model could not read."""

    tokenization: float = 0.0
    queue: float = 0.0
    inference: float = 0.0
    tokens: int = 0
    warning: str = ""


class Reply(NamedTuple):
    """`number` is that of the request, 0 for messages about the process itself."""

    number: int
    state: State
    payload: Any = None
    timing: tuple[float, float, float, int, str] | None = None


def pack(value: Any) -> bytes:
    """The frame of a value."""
    data = marshal.dumps(value)
    return LENGTH.pack(len(data)) + data


def pack_replies(replies: Sequence[Reply]) -> bytes:
    """The frame of several replies; marshal takes no named tuples."""
    return pack([(*reply[:3], reply.timing and tuple(reply.timing)) for reply in replies])


class FrameReader:
    """Collects bytes that arrive in any portions, and returns the values of complete frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        buffer = self._buffer
        buffer += data
        values, start = [], 0
        while len(buffer) - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(buffer, start)
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {length:,} bytes; expected at most {MAX_FRAME_BYTES:,}")
            end = start + LENGTH.size + length
            if len(buffer) < end:
                break
            values.append(marshal.loads(memoryview(buffer)[start + LENGTH.size : end]))
            start = end
        if start:
            del buffer[:start]
        return values
