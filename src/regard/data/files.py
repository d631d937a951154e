"""Text files as lines: standard input, compressed files, and what to say when one cannot be read.

A line ends with LF or CR LF and nothing else: U+2028, vertical tabs and lone carriage returns belong to the text. A
line is held in memory, so its length has a limit, and so has a compressed file that is held as a whole: a few
kilobytes can unpack to terabytes.
"""

from __future__ import annotations

import bz2
import difflib
import gzip
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from regard.data.line_limit import current_max_line
from regard.data.xz import open_xz
from regard.data.zipped import open_zip
from regard.data.zstd import open_zstandard
from regard.errors import InputError
from regard.files.file_input import format_size, is_descriptor, open_file, read_up_to

__all__ = [
    "COMPRESSED_SUFFIXES",
    "STANDARD_INPUT",
    "content_suffix",
    "display_name",
    "open_bytes",
    "open_text",
    "read_all_bytes",
    "read_all_lines",
    "taken_for_file",
]

STANDARD_INPUT = "-"

# What a compressed file may need in memory where all of it is held: this much, and so many times its size on the disk.
MAX_HELD_BYTES = 512 << 20
MAX_EXPANSION = 20
LINE_OVERHEAD = 64  # bytes of memory that a line needs beside its text

_UNPACKERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".xz": open_xz,
    ".bz2": bz2.open,
    ".zst": open_zstandard,
    ".zip": open_zip,
}
COMPRESSED_SUFFIXES = tuple(_UNPACKERS)  # the suffixes of compressed files
# None of these begins a UTF-8 text, save bzip2's "BZh", which is therefore read with the block mark behind it.
_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\x00": ".xz", b"\x28\xb5\x2f\xfd": ".zst", b"PK\x03\x04": ".zip"}
_DAMAGE = (EOFError, OSError, lzma.LZMAError, zlib.error)


def display_name(path: str | os.PathLike[str]) -> str:
    """How errors call the input."""
    return "standard input" if os.fspath(path) == STANDARD_INPUT else os.fspath(path)


def content_suffix(path: str | os.PathLike[str]) -> str:
    """What the name says of the content, the compression apart: `.tsv` for `train.TSV.gz`, `""` for standard input."""
    inner = Path(os.fspath(path).lower())
    return inner.with_suffix("").suffix if inner.suffix in _UNPACKERS else inner.suffix


def taken_for_file(source: str) -> bool:
    """Whether a file is meant where a file or a text may stand: one is called so, or no blank is in it."""
    return source == STANDARD_INPUT or os.path.exists(source) or not any(map(str.isspace, source))


@contextmanager
def open_text(path: str | os.PathLike[str], *, max_line: int | None = None) -> Iterator[Iterator[str]]:
    """Lines without their ends, one at a time; `-` is standard input, and what is packed is unpacked.

    That is .gz, .xz, .bz2, .zst, and a .zip with one text in it.

    InputError names the file and the line for bytes that are not UTF-8, for a compressed file that is cut off, and for
    a line of more than `max_line` bytes (64 MiB unless `line_limit` says otherwise).
    """
    limit = current_max_line(max_line)
    with open_bytes(path) as file:
        yield _decode(file, display_name(path), limit)


@contextmanager
def open_bytes(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """The unpacked bytes of a file or of standard input (which stays open); InputError when it cannot be opened.

    A FIFO, a device and a socket are refused, but for the streams of this process (/dev/stdin, /dev/fd/N). Damage
    inside a compressed file shows while reading: EOFError, OSError, lzma.LZMAError or zlib.error.
    """
    with _open(path) as (file, _):
        yield file


def read_all_lines(path: str | os.PathLike[str], *, max_line: int | None = None) -> list[str]:
    """The lines of `open_text`, all at once; InputError also for a compressed file that unpacks to far too much."""
    limit, held, lines = current_max_line(max_line), 0, []
    with _open(path) as (file, most):
        for line in _decode(file, display_name(path), limit):
            held += len(line) + LINE_OVERHEAD
            if held > most:
                raise InputError(_too_much(path, most))
            lines.append(line)
    return lines


def read_all_bytes(path: str | os.PathLike[str]) -> bytes:
    """The unpacked bytes of a file; InputError for a compressed file that is damaged or unpacks to far too much."""
    try:
        with _open(path) as (file, most):
            data = file.read() if most == sys.maxsize else read_up_to(file, most + 1)
    except _DAMAGE as error:
        raise InputError(
            f"{display_name(path)} breaks off or is damaged ({_say(error)}): copy or download it again"
        ) from None
    if len(data) > most:
        raise InputError(_too_much(path, most))
    return data


@contextmanager
def _open(path: str | os.PathLike[str]) -> Iterator[tuple[IO[bytes], int]]:
    """The unpacked bytes, and how much memory they may need where they are held as a whole.

    The size of a plain file is for the user to know; of a compressed one nobody does before it is unpacked.
    """
    if os.fspath(path) == STANDARD_INPUT:
        if sys.stdin is None:
            raise InputError("standard input is closed: name a file, or send the texts through a pipe")
        stream = cast("BinaryIO", sys.stdin.buffer)
        unpacked = _unpack(stream, path)
        yield unpacked, sys.maxsize if unpacked is stream else MAX_HELD_BYTES
        return
    try:
        file = open(path, "rb") if is_descriptor(path) else open_file(path)  # noqa: SIM115
    except InputError as error:
        raise InputError(f"{error}, or send it to standard input: `- < {os.fspath(path)}`") from None
    except (OSError, ValueError) as error:
        raise InputError(_why_not(Path(path), error)) from None
    with file, _unpack(file, path) as unpacked:
        yield (
            unpacked,
            sys.maxsize if unpacked is file else MAX_HELD_BYTES + MAX_EXPANSION * os.fstat(file.fileno()).st_size,
        )


def _too_much(path: str | os.PathLike[str], most: int) -> str:
    return (
        f"{display_name(path)} unpacks to more than {most >> 20:,} MiB, far more than its size suggests; if it is "
        "meant to, unpack it yourself and name the unpacked file"
    )


def _unpack(file: BinaryIO, path: str | os.PathLike[str]) -> IO[bytes]:
    """The name decides; where it says nothing (standard input, no suffix), the first bytes do."""
    start: bytes = file.peek(10)[:10] if hasattr(file, "peek") else b""
    named = Path(path).suffix.lower() if os.fspath(path) != STANDARD_INPUT else ""
    if named in _UNPACKERS:
        if not start:
            raise InputError(f"{display_name(path)} is empty, which no {named} file is: copy or download it again")
        return cast("IO[bytes]", _UNPACKERS[named](file))
    found = next((suffix for magic, suffix in _MAGIC.items() if start.startswith(magic)), None)
    if start.startswith(b"BZh") and start[4:] == b"1AY&SY":
        found = ".bz2"
    return cast("IO[bytes]", _UNPACKERS[found](file)) if found else file


def _decode(file: IO[bytes], name: str, limit: int) -> Iterator[str]:
    number = 0
    while True:
        try:
            line = file.readline(limit + 3)  # the line, its end, and one byte more if it is too long
        except _DAMAGE as error:
            raise InputError(
                f"{name} breaks off or is damaged after line {number} ({_say(error)}): copy or download it again"
            ) from None
        if not line:
            return
        number += 1
        if len(line) > limit and len(line.removesuffix(b"\n").removesuffix(b"\r")) > limit:
            raise InputError(
                f"{name} line {number} has more than {format_size(limit)}, the most a line may have; expected a text "
                "with line ends. If it is meant to be so long, allow more: --max-line 1GiB"
            )
        if number == 1 and line[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise InputError(f"{name} line 1: this is UTF-16, expected UTF-8; convert it: {_convert('UTF-16', name)}")
        try:
            # The mark that some editors put before UTF-8 is no part of the first text.
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name} line {number}: byte {error.start + 1} of the line, 0x{error.object[error.start]:02x}, is not "
                f"UTF-8; convert the file: {_convert('LATIN1', name)} (or what its encoding is)"
            ) from None
        yield text.removesuffix("\n").removesuffix("\r")


def _convert(encoding: str, name: str) -> str:
    plain = " " not in name and Path(name).suffix.lower() not in _UNPACKERS
    return f"iconv -f {encoding} -t UTF-8 {name if plain else 'FILE'} > NEW"


def _say(error: BaseException) -> str:
    """The system's words without its number, and without the file name that our sentence already has."""
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or type(error).__name__


def _why_not(path: Path, error: Exception) -> str:
    if isinstance(error, IsADirectoryError):
        inside = min(_names(path), default=None)
        return f"{path} is a folder, expected a file{f', such as {path / inside}' if inside else ''}"
    if isinstance(error, FileNotFoundError):
        folder = path.parent
        if not folder.is_dir():
            return f"{path} cannot be read: there is no folder {folder}"
        return f"there is no file {path}{_near(path, folder)} (`-` reads standard input)"
    return f"{path} cannot be read: {_say(error)}; expected a file, or `-` for standard input"


def _near(path: Path, folder: Path) -> str:
    close = difflib.get_close_matches(path.name, _names(folder), n=1, cutoff=0.5)
    return f"; did you mean {folder / close[0]}" if close else ""


def _names(folder: Path) -> list[str]:
    """Names of files in a folder, up to a bound: a folder of a million files must not make an error slow."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, 10_000) if entry.is_file()]
    except OSError:
        return []
