"""xz files as bytes, unpacked in a bounded amount of memory."""

from __future__ import annotations

import io
import lzma
from typing import IO, TYPE_CHECKING, BinaryIO

from regard.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["open_xz"]

CHUNK = 1 << 16  # packed bytes at a time
MEMORY = 512 << 20  # for unpacking; `xz -9` needs 65 MiB


def open_xz(file: BinaryIO) -> IO[bytes]:
    """The unpacked bytes of an open file; lzma.LZMAError for damaged bytes, EOFError for a file that breaks off."""
    return io.BufferedReader(_Streams(file), buffer_size=1 << 18)


class _Streams(io.RawIOBase):
    """The streams of a file, one after the other."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._stream = _start()
        self._packed = b""
        self._inside = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        while True:
            if self._stream.eof:
                self._packed, self._inside = self._stream.unused_data, False
                self._stream = _start()
            if not self._inside:
                # Zeros may stand between streams and at the end.
                self._packed = self._packed.lstrip(b"\0") or self._file.read(CHUNK)
                if not self._packed:
                    return 0
                self._packed = self._packed.lstrip(b"\0")
                self._inside = bool(self._packed)
                continue
            if self._stream.needs_input and not self._packed:
                self._packed = self._file.read(CHUNK)
                if not self._packed:
                    raise EOFError("the last stream has no end")
            part, self._packed = self._packed, b""
            data = self._unpack(part, len(view))
            if data:
                view[: len(data)] = data
                return len(data)

    def _unpack(self, part: bytes, most: int) -> bytes:
        try:
            return self._stream.decompress(part, most)
        except lzma.LZMAError as error:
            if "limit" not in str(error):
                raise
            raise InputError(
                f"{getattr(self._file, 'name', 'an .xz file')}: unpacking it needs more than {MEMORY >> 20} MiB of "
                "memory; unpack it yourself and name the unpacked file"
            ) from None


def _start() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(memlimit=MEMORY)
