"""Small compressed files that unpack to a lot: made by repeating one compressed piece, so that making them is cheap."""

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
    """Compressed streams of `content`, one after the other, that hold at least `size` bytes."""
    assert callable(pack)
    piece: bytes = pack(content)
    return piece * -(-size // len(content))


def zip_of(path: Path, content: bytes, size: int) -> None:
    """An archive whose only text, a.txt, holds `size` bytes (less than 4 GiB); the checksum is not right."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = deflate.compress(content) + deflate.flush(zlib.Z_FULL_FLUSH)  # ends at a byte, and forgets what was before
    data = piece * (size // len(content)) + b"\x03\x00"  # an empty last block
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a.txt", data)
    packed = bytearray(path.read_bytes())
    for mark, method, unpacked in ((b"PK\x03\x04", 8, 22), (b"PK\x01\x02", 10, 24)):
        place = packed.rfind(mark) if mark == b"PK\x01\x02" else 0
        packed[place + method : place + method + 2] = struct.pack("<H", zipfile.ZIP_DEFLATED)
        packed[place + unpacked : place + unpacked + 4] = struct.pack("<I", size // len(content) * len(content))
    path.write_bytes(packed)


def make_bomb(path: Path, size: int, content: bytes = bytes(PIECE)) -> Path:
    """Write `size` bytes of `content`, compressed as the name of the file says; .zip holds less than 4 GiB."""
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
