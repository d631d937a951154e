"""Decompresses .xz, .zst and .zip in a bounded amount of memory, and detects truncated files."""

from __future__ import annotations

import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from regard.errors import InputError
from regard.files.file_input import read_up_to

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BUFFER = 1 << 18  # decompressed bytes at a time
XZ_CHUNK = 1 << 16  # compressed bytes at a time
XZ_MEMORY = 512 << 20  # `xz -9` needs 65 MiB
# Compressed bytes at a time. They can decompress to 16 MiB, which are held in memory; larger chunks are not faster.
ZSTD_CHUNK = 1 << 9
IGNORED_PREFIXES = ("_", ".", "readme", "licen", "source")  # names of notes in an archive besides the text
STREAMED = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # methods that `zipfile` decompresses in chunks
MAX_PIPED = 256 << 20  # bytes of an archive from a pipe, which must be held in memory
DAMAGE = (EOFError, OSError, lzma.LZMAError, zlib.error, zipfile.BadZipFile)  # errors of reading a damaged file


class ChunkStream(io.RawIOBase):
    """The concatenation of the chunks of an iterator. It can seek forward, by reading."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._chunk = chunks, memoryview(b"")
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        target = offset + (self._position if whence == os.SEEK_CUR else 0)
        if whence == os.SEEK_END or target < self._position:
            raise io.UnsupportedOperation("a compressed file can only be read forward")
        while self._position < target and self.read(min(BUFFER, target - self._position)):
            pass
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        while not self._chunk:
            try:
                self._chunk = memoryview(next(self._chunks))
            except StopIteration:
                return 0
        part = self._chunk[: len(view)]
        view[: len(part)] = part
        self._chunk = self._chunk[len(part) :]
        self._position += len(part)
        return len(part)


def open_xz(file: BinaryIO) -> IO[bytes]:
    """Open the decompressed bytes. Reading raises lzma.LZMAError for damaged data and EOFError for a truncated file."""
    return io.BufferedReader(ChunkStream(_xz_chunks(file)), BUFFER)


def _xz_chunks(file: BinaryIO) -> Iterator[bytes]:
    data = file.read(XZ_CHUNK)
    while data:
        stream = lzma.LZMADecompressor(memlimit=XZ_MEMORY)
        while not stream.eof:
            if stream.needs_input and not (data := data or file.read(XZ_CHUNK)):
                raise EOFError("the last stream is incomplete")
            try:
                decompressed = stream.decompress(data, BUFFER)
            except lzma.LZMAError as error:
                if "limit" not in str(error):
                    raise
                raise InputError(
                    f"{getattr(file, 'name', 'an .xz file')}: unpacking it needs more than {XZ_MEMORY >> 20} MiB of "
                    "memory; unpack it yourself and name the unpacked file"
                ) from None
            data = b""
            yield decompressed
        data = stream.unused_data.lstrip(b"\0")  # zero padding may follow each stream
        while not data and (padding := file.read(XZ_CHUNK)):
            data = padding.lstrip(b"\0")


def open_zstandard(file: BinaryIO) -> IO[bytes]:
    """Open the decompressed bytes. Reading raises OSError for damaged data and EOFError for a truncated file."""
    try:
        import zstandard
    except ImportError:
        raise InputError(
            "a .zst file needs the package zstandard: pip install 'regard[data]', or unpack it first: zstd -d FILE"
        ) from None
    return io.BufferedReader(ChunkStream(_zstd_chunks(file, zstandard)), BUFFER)


def _zstd_chunks(file: BinaryIO, zstandard: Any) -> Iterator[bytes]:
    """The library's own reader treats the end of a truncated file as the end of the text."""
    decompressor = zstandard.ZstdDecompressor()
    data = file.read(ZSTD_CHUNK)
    while data:
        frame = decompressor.decompressobj()
        while not frame.eof:
            if not (data := data or file.read(ZSTD_CHUNK)):
                raise EOFError("the last frame is incomplete")
            try:
                decompressed = frame.decompress(data)
            except zstandard.ZstdError as error:
                raise OSError(str(error)) from None
            data = b""
            yield decompressed
        data = frame.unused_data or file.read(ZSTD_CHUNK)


def open_zip(file: BinaryIO) -> IO[bytes]:
    """Open the decompressed bytes of the only text in an archive, ignoring notes such as `_about.txt` and README.

    Raises InputError if there is no text or more than one, or if the archive cannot be opened.
    """
    name = str(getattr(file, "name", "the archive"))
    name = "standard input" if name == "<stdin>" else name
    try:
        archive = zipfile.ZipFile(file if file.seekable() else _read_pipe(file))
        member = _only_text(archive, name)
        if member.compress_type not in STREAMED:
            raise InputError(
                f"{name} does not use the usual compression of .zip files (deflate); unpack it yourself and name "
                f"{member.filename}"
            )
        return io.BufferedReader(archive.open(member), BUFFER)  # type: ignore[type-var]
    except (*DAMAGE, NotImplementedError, RuntimeError) as error:  # also an unknown method, a password
        raise InputError(
            f"{name} cannot be unpacked ({error}): copy or download it again, or unpack it yourself"
        ) from None


def _read_pipe(file: BinaryIO) -> io.BytesIO:
    data = read_up_to(file, MAX_PIPED + 1)
    if len(data) > MAX_PIPED:
        raise InputError("standard input is a .zip archive of more than 256 MiB; save it to a file and name that")
    return io.BytesIO(data)


def _only_text(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    texts = [
        member
        for member in archive.infolist()
        if not member.is_dir()
        and not member.filename.startswith("__MACOSX")
        and not os.path.basename(member.filename).lower().startswith(IGNORED_PREFIXES)
    ]
    if len(texts) != 1:
        names = ", ".join(member.filename for member in texts[:5]) or "none"
        raise InputError(f"{name} contains {len(texts)} texts ({names}), expected one; unpack it and name the file")
    return texts[0]
