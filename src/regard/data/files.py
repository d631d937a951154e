"""Reads text files, compressed files and standard input line by line, with errors that name the line.

Files are on the local disk or on an object store (`s3://bucket/key`), and several of them can be named at once: a
folder or a glob stands for its files in sorted order.

Lines end with LF or CR LF only: U+2028, vertical tabs and lone carriage returns are part of the text, but a file whose
only line breaks are carriage returns is refused. Lines are held in
memory, so their length is limited, and so is the size of compressed files that are read completely: a few kilobytes can
decompress to terabytes.
"""

from __future__ import annotations

import bz2
import codecs
import difflib
import gzip
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from regard.data.compression import DAMAGE, ChunkStream, open_xz, open_zip, open_zstandard
from regard.errors import InputError
from regard.files import storage
from regard.files.file_input import current_max_line, format_size, is_descriptor, open_file, read_up_to

STANDARD_INPUT = "-"
# Memory limit for a compressed file that is read completely: this much, plus this many times its size on disk.
MAX_HELD_BYTES = 512 << 20
MAX_EXPANSION = 20
LINE_OVERHEAD = 64  # bytes of memory per line besides its text
_DECOMPRESSORS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".xz": open_xz,
    ".bz2": bz2.open,
    ".zst": open_zstandard,
    ".zip": open_zip,
}
COMPRESSED_SUFFIXES = tuple(_DECOMPRESSORS)
ROW_SUFFIXES = (".txt", ".text", ".csv", ".tsv", ".tab", ".json", ".jsonl", ".ndjson", ".parquet", ".pq")
# No UTF-8 text starts with these bytes. Texts may start with bzip2's "BZh", so `_decompress` checks the block mark too.
_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\x00": ".xz", b"\x28\xb5\x2f\xfd": ".zst", b"PK\x03\x04": ".zip"}


def display_name(path: str | os.PathLike[str]) -> str:
    """Return the name of an input for messages."""
    if os.fspath(path) == STANDARD_INPUT:
        return "standard input"
    return storage.normalize(path) if storage.is_remote(path) else os.fspath(path)


def content_suffix(path: str | os.PathLike[str]) -> str:
    """Return the suffix without that of the compression: `.tsv` for `train.TSV.gz`, `""` for standard input."""
    inner = Path(os.fspath(path).lower())
    return inner.with_suffix("").suffix if inner.suffix in _DECOMPRESSORS else inner.suffix


def taken_for_file(source: str) -> bool:
    """Return whether an argument that may be a file or a text is a file: it exists, or it has no whitespace."""
    if source == STANDARD_INPUT or os.path.exists(source) or not any(map(str.isspace, source)):
        return True
    return source.startswith(tuple(f"{scheme}://" for scheme in storage.STORES))


def is_file_name(source: str) -> bool:
    """Return whether an argument that may be a file or a text is a file.

    It exists, or it looks like one: it has the suffix of a table, or a path separator and no blanks.
    """
    if source == STANDARD_INPUT or os.path.exists(source):
        return True
    suffixes = (*ROW_SUFFIXES, ".conll", *COMPRESSED_SUFFIXES)
    return source.lower().endswith(suffixes) or (os.sep in source and not any(map(str.isspace, source)))


def refuse_file_name(text: str) -> None:
    """Raise InputError for a text of a Python caller that is, or looks like, the name of a file."""
    if is_file_name(text):
        raise InputError(
            f"a string is a text, and this one looks like a file: pass pathlib.Path({text!r}) to read the file, or "
            f"[{text!r}] if it is a text"
        )


def is_rereadable(path: str | os.PathLike[str]) -> bool:
    """Return whether an input can be read more than once: files, folders and globs, but not standard input or pipes."""
    if os.fspath(path) == STANDARD_INPUT:
        return False
    return os.path.isfile(path) or os.path.isdir(path) or storage.is_remote(path) or is_glob(path)


def files_of(path: str | os.PathLike[str]) -> list[str] | None:
    """Return the files of a folder or of a glob, in sorted order; None for standard input and for what is one file.

    In a folder, only files with the suffix of a text or a table are read. Raises InputError if there is none.
    """
    if os.fspath(path) == STANDARD_INPUT or is_descriptor(path) or os.path.isfile(path):
        return None
    if not (storage.is_remote(path) or os.path.isdir(path) or is_glob(path)):
        return None
    found = storage.list_files(path)
    if found == [storage.normalize(path)]:
        return None
    if is_glob(path):
        return found
    rows = [file for file in found if content_suffix(file) in ROW_SUFFIXES]
    if not rows:
        raise InputError(
            f"{display_name(path)} has no file of texts, such as {os.path.basename(found[0])}: expected files that "
            f"end in {', '.join(ROW_SUFFIXES)}, compressed or not"
        )
    return rows


def is_glob(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a pattern for files, and not the name of one that has such characters."""
    return storage.is_pattern(path) and not os.path.exists(path)


def refuse_output_in_input(output: str | os.PathLike[str], source: str | os.PathLike[str]) -> None:
    """Raise InputError if the output is the file `source`, or is in the folder or the glob `source`.

    The next run would read it.
    """
    read, written = os.fspath(source), os.fspath(output)
    if os.path.isfile(read) and os.path.realpath(read) == os.path.realpath(written):
        raise InputError(f"{output} is the input, which the output would replace; choose another output")
    if read.startswith(tuple(f"{scheme}:/" for scheme in storage.STORES)):
        inside = storage.normalize(written).startswith(storage.normalize(read).rstrip("/") + "/")
    elif os.path.isdir(read):
        inside = Path(os.path.realpath(written)).is_relative_to(os.path.realpath(read))
    else:
        inside = is_glob(read) and storage.matches(read, written)
    if inside and read != STANDARD_INPUT:
        raise InputError(
            f"{output} is inside the input {source}: the next run would read it as input; choose an output elsewhere"
        )


@contextmanager
def open_text(path: str | os.PathLike[str], encoding: str | None = None) -> Iterator[Iterator[str]]:
    """Iterate over lines without their line ends; `-` is standard input.

    Compressed files are decompressed: .gz, .xz, .bz2, .zst, and a .zip with one text in it.

    Raises InputError with file and line for bytes that are not of the encoding (UTF-8 by default), for a truncated
    compressed file, and for a line that is longer than the limit (see `line_limit`).
    """
    with open_bytes(path) as file:
        yield decode_lines(file, display_name(path), encoding)


@contextmanager
def open_bytes(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open the decompressed bytes of a file or of standard input (which stays open).

    Raises InputError if it cannot be opened. FIFOs, devices and sockets are refused, except for open descriptors of
    this process (/dev/stdin, /dev/fd/N). Reading a damaged compressed file raises one of `DAMAGE`.
    """
    with open_bounded(path) as (file, _):
        yield file


def read_all_lines(path: str | os.PathLike[str], encoding: str | None = None) -> list[str]:
    """Return all lines of `open_text`. Also raises InputError if a compressed file decompresses to far too much."""
    with open_bounded(path) as (file, max_size):
        return hold_lines(decode_lines(file, display_name(path), encoding), path, max_size)


def hold_lines(lines: Iterable[str], path: str | os.PathLike[str], max_size: int) -> list[str]:
    """Return a list of the lines. Raises InputError if they need more than `max_size` bytes."""
    size, held = 0, []
    for line in lines:
        size += len(line) + LINE_OVERHEAD
        if size > max_size:
            raise InputError(_too_large(path, max_size))
        held.append(line)
    return held


def read_all_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the decompressed bytes of a file. Raises InputError if it is damaged or decompresses to far too much."""
    try:
        with open_bounded(path) as (file, max_size):
            data = file.read() if max_size == sys.maxsize else read_up_to(file, max_size + 1)
    except DAMAGE as error:
        raise InputError(damaged(path, error)) from None
    if len(data) > max_size:
        raise InputError(_too_large(path, max_size))
    return data


@contextmanager
def open_bounded(path: str | os.PathLike[str]) -> Iterator[tuple[IO[bytes], int]]:
    """Open the decompressed bytes, together with the limit on their size if they are read completely.

    Plain files have no limit: the user can see their size.
    """
    if os.fspath(path) == STANDARD_INPUT:
        if sys.stdin is None:
            raise InputError("standard input is closed: name a file, or send the texts through a pipe")
        stream = cast("BinaryIO", sys.stdin.buffer)
        content = _decompress(stream, path)
        yield content, sys.maxsize if content is stream else MAX_HELD_BYTES
        return
    if storage.is_remote(path):
        with storage.open_input(path) as remote, _decompress(remote, path) as content:
            limit = MAX_HELD_BYTES + MAX_EXPANSION * remote.raw.size()  # type: ignore[attr-defined]
            yield content, sys.maxsize if content is remote else limit
        return
    try:
        file = open(path, "rb") if is_descriptor(path) else open_file(storage.local_path(path))  # noqa: SIM115
    except InputError as error:
        raise InputError(f"{error}, or send it to standard input: `- < {os.fspath(path)}`") from None
    except (OSError, ValueError) as error:
        raise InputError(_open_error(Path(path), error)) from None
    with file, _decompress(file, path) as content:
        size = os.fstat(file.fileno()).st_size
        yield content, sys.maxsize if content is file else MAX_HELD_BYTES + MAX_EXPANSION * size


def damaged(path: str | os.PathLike[str], error: BaseException) -> str:
    """Say that a compressed file cannot be read."""
    return f"{display_name(path)} is truncated or damaged ({_reason(error)}): copy or download it again"


def _too_large(path: str | os.PathLike[str], max_size: int) -> str:
    return (
        f"{display_name(path)} unpacks to more than {max_size >> 20:,} MiB, far more than its size suggests; if that "
        "is intended, unpack it yourself and name the unpacked file"
    )


def _decompress(file: BinaryIO, path: str | os.PathLike[str]) -> IO[bytes]:
    """Choose the decompressor by the suffix, or by the first bytes if there is none (as for standard input)."""
    start: bytes = file.peek(10)[:10] if hasattr(file, "peek") else b""
    suffix = Path(path).suffix.lower() if os.fspath(path) != STANDARD_INPUT else ""
    if suffix in _DECOMPRESSORS:
        if not start:
            raise InputError(f"{display_name(path)} is empty, so not a {suffix} file: copy or download it again")
        return cast("IO[bytes]", _DECOMPRESSORS[suffix](file))
    detected = next((suffix for magic, suffix in _MAGIC.items() if start.startswith(magic)), None)
    if start.startswith(b"BZh") and start[4:] == b"1AY&SY":
        detected = ".bz2"
    return cast("IO[bytes]", _DECOMPRESSORS[detected](file)) if detected else file


def decode_lines(file: IO[bytes], name: str, encoding: str | None = None, *, number: int = 0) -> Iterator[str]:
    """Yield the lines of a file without their line ends; a byte order mark is not part of the first one.

    `number` is the number of lines that were read from the file before.
    """
    codec = _codec(encoding)
    # Line breaks of UTF-16 and UTF-32 are not single bytes: these encodings are converted before lines are split.
    wide = codec.startswith(("utf-16", "utf-32"))
    source: IO[bytes] = _as_utf8(file, codec) if wide else file
    codec, limit = "utf-8" if wide else codec, current_max_line()
    while True:
        try:
            line = source.readline(limit + 3)  # the line, its line end, and one more byte if it is too long
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name} after line {number}: not {encoding} ({error.reason}); name another --encoding"
            ) from None
        except DAMAGE as error:
            raise InputError(
                f"{name} is truncated or damaged after line {number} ({_reason(error)}): copy or download it again"
            ) from None
        if not line:
            return
        number += 1
        if number == 1 and not line.endswith(b"\n") and b"\r" in line[:-1]:
            raise InputError(
                f"{name}: its lines end with a carriage return only, as on a classic Mac; expected line feeds. Convert "
                f"it: tr '\\r' '\\n' < {_shell_name(name)} > NEW"
            )
        if len(line) > limit and len(line.removesuffix(b"\n").removesuffix(b"\r")) > limit:
            raise InputError(
                f"{name} line {number} has more than {format_size(limit)}, the limit for a line; expected a text "
                "with line breaks. If the line is really that long, raise the limit: --max-line 1GiB"
            )
        if number == 1 and codec == "utf-8" and line[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise InputError(
                f"{name} line 1: this is UTF-16, expected UTF-8; convert it: {_convert('UTF-16', name)}; commands "
                "that read tables also take --encoding utf-16"
            )
        try:
            # utf-8-sig removes a byte order mark.
            text = line.decode("utf-8-sig" if number == 1 and codec == "utf-8" else codec)
        except UnicodeDecodeError as error:
            remedy = f"convert the file: {_convert('LATIN1', name)} (or its real encoding)"
            if codec == "utf-8":
                remedy += "; commands that read tables also take --encoding latin-1"
            raise InputError(
                f"{name} line {number}: byte {error.start + 1} of the line, 0x{error.object[error.start]:02x}, is not "
                f"{codec.upper()}; {remedy}"
            ) from None
        yield text.removesuffix("\n").removesuffix("\r")


def _codec(encoding: str | None) -> str:
    """Return the normalized name of an encoding of texts. Raises InputError if there is none."""
    if encoding is None:
        return "utf-8"
    try:
        codecs.lookup(encoding)
        "".encode(encoding)  # refuses codecs that are not for texts, such as base64
        name = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        raise InputError(
            f"there is no encoding {encoding!r}; expected a name such as utf-8, latin-1, cp1252 or utf-16"
        ) from None
    return "utf-8" if name == "utf-8-sig" else name


def _as_utf8(file: IO[bytes], codec: str) -> IO[bytes]:
    """The bytes of a file in another encoding, as UTF-8."""
    texts = codecs.iterdecode(iter(partial(file.read, io.DEFAULT_BUFFER_SIZE), b""), codec)
    return io.BufferedReader(ChunkStream(text.encode("utf-8", "surrogatepass") for text in texts))


def _convert(encoding: str, name: str) -> str:
    return f"iconv -f {encoding} -t UTF-8 {_shell_name(name)} > NEW"


def _shell_name(name: str) -> str:
    """A file name for a command that a user copies; FILE if the command could not read it."""
    return name if " " not in name and Path(name).suffix.lower() not in _DECOMPRESSORS else "FILE"


def _reason(error: BaseException) -> str:
    """Return the system's message without the error number and the file name."""
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or type(error).__name__


def _open_error(path: Path, error: Exception) -> str:
    if isinstance(error, IsADirectoryError):
        inside = min(_names(path), default=None)
        return f"{path} is a folder, expected a file{f', such as {path / inside}' if inside else ''}"
    if isinstance(error, FileNotFoundError):
        folder = path.parent
        if not folder.is_dir():
            return f"{path} cannot be read: there is no folder {folder}"
        close = difflib.get_close_matches(path.name, _names(folder), n=1, cutoff=0.5)
        hint = f"; did you mean {folder / close[0]}" if close else ""
        return f"there is no file {path}{hint} (`-` reads standard input)"
    return f"{path} cannot be read: {_reason(error)}; expected a file, or `-` for standard input"


def _names(folder: Path) -> list[str]:
    """Return up to 10,000 names of files in a folder, so that errors stay fast in large folders."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, 10_000) if entry.is_file()]
    except OSError:
        return []
