"""Decompresses xz files in a bounded amount of memory."""

from __future__ import annotations

import io
import lzma
from typing import IO, TYPE_CHECKING, BinaryIO

from regard.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK = 1 << 16  # compressed bytes at a time
MEMORY = 512 << 20  # `xz -9` needs 65 MiB


def open_xz(file: BinaryIO) -> IO[bytes]:
    """Open the decompressed bytes. Reading raises lzma.LZMAError for damaged data and EOFError for a truncated file."""
    return io.BufferedReader(_Streams(file), buffer_size=1 << 18)


class _Streams(io.RawIOBase):
    """Concatenates the streams of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._stream = _new_stream()
        self._input = b""
        self._inside = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        while True:
            if self._stream.eof:
                self._input, self._inside = self._stream.unused_data, False
                self._stream = _new_stream()
            if not self._inside:
                # Zero padding may follow each stream.
                self._input = self._input.lstrip(b"\0") or self._file.read(CHUNK)
                if not self._input:
                    return 0
                self._input = self._input.lstrip(b"\0")
                self._inside = bool(self._input)
                continue
            if self._stream.needs_input and not self._input:
                self._input = self._file.read(CHUNK)
                if not self._input:
                    raise EOFError("the last stream is incomplete")
            chunk, self._input = self._input, b""
            data = self._decompress(chunk, len(view))
            if data:
                view[: len(data)] = data
                return len(data)

    def _decompress(self, chunk: bytes, max_length: int) -> bytes:
        try:
            return self._stream.decompress(chunk, max_length)
        except lzma.LZMAError as error:
            if "limit" not in str(error):
                raise
            raise InputError(
                f"{getattr(self._file, 'name', 'an .xz file')}: unpacking it needs more than {MEMORY >> 20} MiB of "
                "memory; unpack it yourself and name the unpacked file"
            ) from None


def _new_stream() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(memlimit=MEMORY)
