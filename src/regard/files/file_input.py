"""Opens files named by a user or a model folder: regular files only, with bounded reads.

Opening a FIFO blocks, and opening a device can have side effects and it may never end. The file type is therefore
checked before the file is opened, and again afterwards in case it was replaced in between.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BufferedReader
from typing import IO

from regard.errors import InputError

KINDS = {
    stat.S_IFIFO: "a FIFO (named pipe)",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
CHUNK = 1 << 20  # bytes
MAX_LINE = 64 << 20  # default limit for the bytes of a line
MAX_SIZE = 1 << 40  # largest size that a user can give
UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}

# Open descriptors of this process, under the names that shells use (`<(command)` is /dev/fd/63).
DESCRIPTOR = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")
NONBLOCKING = getattr(os, "O_NONBLOCK", 0)  # do not wait for the writer of a FIFO; no effect on regular files

_max_line: ContextVar[int] = ContextVar("max_line", default=MAX_LINE)


def is_descriptor(path: str | os.PathLike[str]) -> bool:
    """Return whether a path names an open descriptor of this process: /dev/stdin, /dev/fd/N."""
    return DESCRIPTOR.fullmatch(os.fspath(path)) is not None


def open_file(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file for reading. Raises InputError for FIFOs, devices and sockets, and OSError as `open` does."""
    check_regular(path)
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | NONBLOCKING))  # noqa: SIM115 (returned)
    try:
        _check(os.fstat(file.fileno()), path)
    except BaseException:
        file.close()
        raise
    return file


def read_file(path: str | os.PathLike[str], *, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes. Raises InputError if it is larger, and OSError as `open` does."""
    with open_file(path) as file:
        data = read_up_to(file, limit + 1)
    if len(data) > limit:
        raise InputError(
            f"{os.fspath(path)}: refused: larger than {format_size(limit)}, the limit for such a file; "
            "check that it is the right file"
        )
    return data


def read_up_to(file: IO[bytes], size: int) -> bytes:
    """Read at most `size` bytes in chunks; `read(size)` of a buffered file would allocate all of them at once."""
    chunks, total = [], 0
    while total < size and (chunk := file.read(min(CHUNK, size - total))):
        chunks.append(chunk)
        total += len(chunk)
    return b"".join(chunks)


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise InputError for a FIFO, a device or a socket, and IsADirectoryError for a folder, without opening it."""
    _check(os.stat(path), path)


def format_size(size: int) -> str:
    """Format a number of bytes: 64 MiB, 1,000 bytes."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power and size % (1 << power) == 0:
            return f"{size >> power:,} {unit}"
    return f"{size:,} bytes"


def parse_size(text: str) -> int:
    """Parse "64MiB", "1.5 GB" or "1000" to bytes. Raises InputError for other texts and for more than 1 TiB."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([a-zA-Z]*)", text.strip(), re.ASCII)
    unit = UNITS.get(match[2].lower()) if match else None
    size = round(float(match[1]) * unit) if match and unit else 0
    if not 1 <= size <= MAX_SIZE:
        raise InputError(f"{text!r} is not a size; expected bytes or a size such as 64MiB or 1GiB, at most 1024GiB")
    return size


def current_max_line() -> int:
    """Return the maximum number of bytes in a line of a text file."""
    return _max_line.get()


@contextmanager
def line_limit(size: int) -> Iterator[None]:
    """Limit lines to this many bytes in every text file opened inside the block."""
    token = _max_line.set(size)
    try:
        yield
    finally:
        _max_line.reset(token)


def _check(state: os.stat_result, path: str | os.PathLike[str]) -> None:
    kind = stat.S_IFMT(state.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if kind in KINDS:
        raise InputError(
            f"{os.fspath(path)} is {KINDS[kind]}, expected a regular file; save its content to a file and name that"
        )
