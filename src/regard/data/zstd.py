"""Decompresses Zstandard files and detects truncated ones.

The library's reader treats the end of a truncated file as the end of the text, so frames are tracked here.
"""

from __future__ import annotations

import io
from typing import IO, TYPE_CHECKING, BinaryIO

from regard.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Compressed bytes at a time. They can decompress to 16 MiB, which are held in memory; larger chunks are not faster.
CHUNK = 1 << 9


def open_zstandard(file: BinaryIO) -> IO[bytes]:
    """Open the decompressed bytes. Reading raises OSError for damaged data and EOFError for a truncated file."""
    return io.BufferedReader(_Frames(file), buffer_size=1 << 18)


class _Frames(io.RawIOBase):
    """Concatenates the frames of a file."""

    def __init__(self, file: BinaryIO) -> None:
        try:
            import zstandard
        except ImportError:
            raise InputError(
                "a .zst file needs the package zstandard: pip install 'regard[data]', or unpack it first: zstd -d FILE"
            ) from None
        self._file = file
        self._error = zstandard.ZstdError
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._frame = self._new_frame()
        self._inside = False
        self._input = b""
        self._output = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        while not self._output:
            self._input = self._input or self._file.read(CHUNK)
            if not self._input:
                if self._inside:
                    raise EOFError("the last frame is incomplete")
                return 0
            if not self._inside:
                self._frame, self._inside = self._new_frame(), True
            try:
                self._output = memoryview(self._frame.decompress(self._input))
            except self._error as error:
                raise OSError(str(error)) from None
            self._input = self._frame.unused_data if self._frame.eof else b""
            self._inside = not self._frame.eof
        chunk = self._output[: len(view)]
        view[: len(chunk)] = chunk
        self._output = self._output[len(chunk) :]
        return len(chunk)
