"""The one text of a .zip archive as bytes."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, BinaryIO

from regard.errors import InputError
from regard.files.file_input import read_up_to

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["open_zip"]

ASIDE = ("_", ".", "readme", "licen", "source")  # how the names of what is no data begin
BOUNDED = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # compressions that `zipfile` unpacks piece by piece
PIPED = 256 << 20  # bytes of an archive that cannot be read from its end, and is held
REFUSED = (zipfile.BadZipFile, NotImplementedError, RuntimeError)  # damage, an unknown method, a password


def open_zip(file: BinaryIO) -> IO[bytes]:
    """The unpacked bytes of the only text in an open archive; notes beside it (`_about.txt`, README) do not count.

    InputError for an archive of none or several, and for one that cannot be opened; damage further on is an OSError,
    EOFError or zlib.error while it is read.
    """
    name = str(getattr(file, "name", "the archive"))
    name = "standard input" if name == "<stdin>" else name
    try:
        archive = zipfile.ZipFile(file if file.seekable() else _held(file))
        member = _only(archive, name)
        if member.compress_type not in BOUNDED:
            raise InputError(
                f"{name} has another compression than the usual one of .zip files (deflate); unpack it yourself and "
                f"name {member.filename}"
            )
        return io.BufferedReader(_Member(archive.open(member)), buffer_size=1 << 18)
    except (*REFUSED, OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{name} cannot be unpacked ({error}): copy or download it again, or unpack it yourself"
        ) from None


class _Member(io.RawIOBase):
    """A file of an archive, whose damage is an OSError as in other compressed files."""

    def __init__(self, member: IO[bytes]) -> None:
        self._member = member

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        try:
            data = self._member.read(len(view))
        except REFUSED as error:
            raise OSError(str(error)) from None
        view[: len(data)] = data
        return len(data)


def _held(file: BinaryIO) -> io.BytesIO:
    data = read_up_to(file, PIPED + 1)
    if len(data) > PIPED:
        raise InputError("standard input holds a .zip archive of more than 256 MiB; save it to a file and name that")
    return io.BytesIO(data)


def _only(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    texts = [
        member
        for member in archive.infolist()
        if not member.is_dir()
        and not member.filename.startswith("__MACOSX")
        and not os.path.basename(member.filename).lower().startswith(ASIDE)
    ]
    if len(texts) != 1:
        found = ", ".join(member.filename for member in texts[:5]) or "none"
        raise InputError(f"{name} holds {len(texts)} texts ({found}), expected one; unpack it and name the file")
    return texts[0]
