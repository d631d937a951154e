"""Decompression bombs: small files that unpack to many bytes, made cheaply by repeating one compressed piece."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import zipfile
import zlib
from pathlib import Path

MIB = 1 << 20
PIECE = 16 * MIB


def repeat(pack: object, content: bytes, size: int) -> bytes:
    """Concatenated compressed streams of `content` that hold at least `size` bytes."""
    assert callable(pack)
    piece: bytes = pack(content)
    return piece * -(-size // len(content))


def zip_of(path: Path, content: bytes, size: int) -> None:
    """An archive whose only text, a.txt, holds `size` bytes (less than 4 GiB); the checksum is wrong."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    # A full flush ends at a byte boundary and resets the dictionary.
    piece = deflate.compress(content) + deflate.flush(zlib.Z_FULL_FLUSH)
    data = piece * (size // len(content)) + b"\x03\x00"  # an empty last block
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a.txt", data)
    packed = bytearray(path.read_bytes())
    for mark, method, unpacked in ((b"PK\x03\x04", 8, 22), (b"PK\x01\x02", 10, 24)):
        start = packed.rfind(mark) if mark == b"PK\x01\x02" else 0
        packed[start + method : start + method + 2] = struct.pack("<H", zipfile.ZIP_DEFLATED)
        packed[start + unpacked : start + unpacked + 4] = struct.pack("<I", size // len(content) * len(content))
    path.write_bytes(packed)


def make_bomb(path: Path, size: int, content: bytes = bytes(PIECE)) -> Path:
    """Writes `size` bytes of `content`, compressed according to the file suffix; .zip holds less than 4 GiB."""
    if path.suffix == ".zip":
        zip_of(path, content, min(size, (1 << 32) - PIECE))
        return path
    if path.suffix == ".zst":
        import zstandard

        packers: dict[str, object] = {".zst": zstandard.ZstdCompressor(19).compress}
    else:
        packers = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    path.write_bytes(repeat(packers[path.suffix], content, size))
    return path
