"""Opens files named by a user or a model folder: regular files only, with bounded reads.

Opening a FIFO blocks, and opening a device can have side effects and it may never end. The file type is therefore
checked before the file is opened, and again afterwards in case it was replaced in between.
"""

from __future__ import annotations

import errno
import os
import re
import stat
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

# Open descriptors of this process, under the names that shells use (`<(command)` is /dev/fd/63).
DESCRIPTOR = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")
NONBLOCKING = getattr(os, "O_NONBLOCK", 0)  # do not wait for the writer of a FIFO; no effect on regular files


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


def _check(state: os.stat_result, path: str | os.PathLike[str]) -> None:
    kind = stat.S_IFMT(state.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if kind in KINDS:
        raise InputError(
            f"{os.fspath(path)} is {KINDS[kind]}, expected a regular file; save its content to a file and name that"
        )
