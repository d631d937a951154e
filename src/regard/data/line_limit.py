"""How long a line of a text file may be: the default, what a caller allows, and sizes as people write them.

Opens no file. What `line_limit` allows holds for the thread that calls it, inside the block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from regard.errors import InputError

__all__ = ["MAX_LINE", "allow_lines", "current_max_line", "line_limit", "parse_size"]

MAX_LINE = 64 << 20  # bytes
LARGEST = 1 << 40

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_allowed: ContextVar[int] = ContextVar("max_line", default=MAX_LINE)


def current_max_line(given: int | None = None) -> int:
    """The limit to apply: what was given, else what the block around allows, else 64 MiB."""
    size = _allowed.get() if given is None else given
    if size < 1:
        raise InputError(f"max_line is {size}; expected a number of bytes, at least 1")
    return size


def allow_lines(size: int) -> None:
    """Let lines of this many bytes pass in the current context; `line_limit` does so for a block."""
    _allowed.set(current_max_line(size))


@contextmanager
def line_limit(size: int) -> Iterator[None]:
    """Let lines of this many bytes, and no longer ones, pass in every file that is opened inside the block."""
    token = _allowed.set(current_max_line(size))
    try:
        yield
    finally:
        _allowed.reset(token)


def parse_size(text: str) -> int:
    """Bytes from "64MiB", "1.5 GB" or "1000"; InputError for what is no size, or more than 1 TiB."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([a-zA-Z]*)", text.strip(), re.ASCII)
    unit = _UNITS.get(found[2].lower()) if found else None
    size = round(float(found[1]) * unit) if found and unit else 0
    if not 1 <= size <= LARGEST:
        raise InputError(f"{text!r} is no size; expected bytes or a size such as 64MiB or 1GiB, at most 1024GiB")
    return size
