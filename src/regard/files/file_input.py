"""Opening the files that a user or a model folder names: regular files only, and bounded reads.

A FIFO blocks whoever opens it, a device may never end and opening one can have effects of its own, so the kind of a
file is looked at before it is opened, and once more after, for it may have been replaced in between.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from io import BufferedReader
from typing import IO

from regard.errors import InputError

__all__ = ["check_regular", "format_size", "is_descriptor", "open_file", "read_file", "read_up_to"]

KINDS = {
    stat.S_IFIFO: "a FIFO (named pipe)",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
PIECE = 1 << 20  # bytes

# Streams that this process was given, under the names that shells use for them (`<(command)` is /dev/fd/63).
DESCRIPTOR = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")
NOT_WAITING = getattr(os, "O_NONBLOCK", 0)  # for the writer of a FIFO; without effect on a regular file


def is_descriptor(path: str | os.PathLike[str]) -> bool:
    """Whether a path names a stream that is open in this process: /dev/stdin, /dev/fd/N."""
    return DESCRIPTOR.fullmatch(os.fspath(path)) is not None


def open_file(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file for reading. InputError for a FIFO, a device or a socket; OSError as `open` raises it."""
    check_regular(path)
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | NOT_WAITING))  # noqa: SIM115 (returned)
    try:
        _check(os.fstat(file.fileno()), path)
    except BaseException:
        file.close()
        raise
    return file


def read_file(path: str | os.PathLike[str], *, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes; InputError where it is larger, OSError as `open`'s."""
    with open_file(path) as file:
        data = read_up_to(file, limit + 1)
    if len(data) > limit:
        raise InputError(
            f"{os.fspath(path)}: refused: larger than {format_size(limit)}, the most that such a file may have; "
            "check that it is the file you mean"
        )
    return data


def read_up_to(file: IO[bytes], size: int) -> bytes:
    """At most `size` bytes, in pieces: a buffered file's own `read` takes the memory for all of them at once."""
    pieces, held = [], 0
    while held < size and (piece := file.read(min(PIECE, size - held))):
        pieces.append(piece)
        held += len(piece)
    return b"".join(pieces)


def check_regular(path: str | os.PathLike[str]) -> None:
    """InputError for a FIFO, a device or a socket, IsADirectoryError for a folder, without opening it."""
    _check(os.stat(path), path)


def format_size(size: int) -> str:
    """A number of bytes for people: 64 MiB, 1,000 bytes."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power and size % (1 << power) == 0:
            return f"{size >> power:,} {unit}"
    return f"{size:,} bytes"


def _check(found: os.stat_result, path: str | os.PathLike[str]) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if kind in KINDS:
        raise InputError(
            f"{os.fspath(path)} is {KINDS[kind]}, expected a regular file; save what it gives to a file and name that"
        )
