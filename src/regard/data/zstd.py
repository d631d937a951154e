"""Zstandard files as bytes, with a cut file told from a whole one.

Its own reader takes the end of a cut file for the end of the text, so frames are followed here.
"""

from __future__ import annotations

import io
from typing import IO, TYPE_CHECKING, BinaryIO

from regard.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["open_zstandard"]

# Packed bytes at a time. What they unpack to is in memory at once, up to 16 MiB of these; more are not faster.
CHUNK = 1 << 9


def open_zstandard(file: BinaryIO) -> IO[bytes]:
    """The unpacked bytes of an open file; OSError for damaged bytes, EOFError for a file that breaks off."""
    return io.BufferedReader(_Frames(file), buffer_size=1 << 18)


class _Frames(io.RawIOBase):
    """The frames of a file, one after the other."""

    def __init__(self, file: BinaryIO) -> None:
        try:
            import zstandard
        except ImportError:
            raise InputError(
                "a .zst file needs the package zstandard: pip install 'regard[data]', or unpack it first: zstd -d FILE"
            ) from None
        self._file = file
        self._failure = zstandard.ZstdError
        self._start = zstandard.ZstdDecompressor().decompressobj
        self._frame = self._start()
        self._inside = False
        self._packed = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        while not self._ready:
            self._packed = self._packed or self._file.read(CHUNK)
            if not self._packed:
                if self._inside:
                    raise EOFError("the last frame has no end")
                return 0
            if not self._inside:
                self._frame, self._inside = self._start(), True
            try:
                self._ready = memoryview(self._frame.decompress(self._packed))
            except self._failure as error:
                raise OSError(str(error)) from None
            self._packed = self._frame.unused_data if self._frame.eof else b""
            self._inside = not self._frame.eof
        part = self._ready[: len(view)]
        view[: len(part)] = part
        self._ready = self._ready[len(part) :]
        return len(part)
