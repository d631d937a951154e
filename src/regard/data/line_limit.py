"""The maximum length of a line in text files, and parsing of sizes such as 64MiB.

`line_limit` applies to the current context (thread or task).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from regard.errors import InputError

MAX_LINE = 64 << 20  # bytes
MAX_SIZE = 1 << 40

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_max_line: ContextVar[int] = ContextVar("max_line", default=MAX_LINE)


def current_max_line(max_line: int | None = None) -> int:
    """Return `max_line` if it is given, else the limit of the enclosing `line_limit` block, else 64 MiB."""
    size = _max_line.get() if max_line is None else max_line
    if size < 1:
        raise InputError(f"max_line is {size}; expected a number of bytes, at least 1")
    return size


def allow_lines(size: int) -> None:
    """Set the limit for the current context; `line_limit` sets it for a block."""
    _max_line.set(current_max_line(size))


@contextmanager
def line_limit(size: int) -> Iterator[None]:
    """Limit lines to this many bytes in every file opened inside the block."""
    token = _max_line.set(current_max_line(size))
    try:
        yield
    finally:
        _max_line.reset(token)


def parse_size(text: str) -> int:
    """Parse "64MiB", "1.5 GB" or "1000" to bytes. Raises InputError for other texts and for more than 1 TiB."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([a-zA-Z]*)", text.strip(), re.ASCII)
    unit = _UNITS.get(match[2].lower()) if match else None
    size = round(float(match[1]) * unit) if match and unit else 0
    if not 1 <= size <= MAX_SIZE:
        raise InputError(f"{text!r} is not a size; expected bytes or a size such as 64MiB or 1GiB, at most 1024GiB")
    return size
