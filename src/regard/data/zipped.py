"""Reads the only text of a .zip archive."""

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

IGNORED_PREFIXES = ("_", ".", "readme", "licen", "source")  # names of notes besides the text
STREAMED = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # methods that `zipfile` decompresses in chunks
MAX_PIPED = 256 << 20  # bytes of an archive from a pipe, which must be held in memory
ZIP_ERRORS = (zipfile.BadZipFile, NotImplementedError, RuntimeError)  # damage, an unknown method, a password


def open_zip(file: BinaryIO) -> IO[bytes]:
    """Open the decompressed bytes of the only text in an archive, ignoring notes such as `_about.txt` and README.

    Raises InputError if there is no text or more than one, or if the archive cannot be opened. Reading damaged data
    raises OSError, EOFError or zlib.error.
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
        return io.BufferedReader(_Member(archive.open(member)), buffer_size=1 << 18)
    except (*ZIP_ERRORS, OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{name} cannot be unpacked ({error}): copy or download it again, or unpack it yourself"
        ) from None


class _Member(io.RawIOBase):
    """A file in an archive; zipfile's errors become OSError, as for other compressed files."""

    def __init__(self, member: IO[bytes]) -> None:
        self._member = member

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        try:
            data = self._member.read(len(view))
        except ZIP_ERRORS as error:
            raise OSError(str(error)) from None
        view[: len(data)] = data
        return len(data)


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
