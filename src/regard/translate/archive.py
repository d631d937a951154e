"""The lines of a text file, one inside a .zip included.

Knows archives of one text. Everything but .zip is left to `regard.data.files`.
"""

from __future__ import annotations

import os
import zipfile
import zlib

from regard.data.files import STANDARD_INPUT, open_text
from regard.errors import InputError

__all__ = ["lines_of"]

LARGEST = 2**31  # bytes: what a bomb unpacks to is more
ASIDE = ("_", ".", "readme", "licen", "source")  # how the names of what is no data begin


def lines_of(path: str | os.PathLike[str]) -> list[str]:
    """All lines without their ends; `-` is standard input, compressed files and archives of one text are unpacked."""
    if os.fspath(path) != STANDARD_INPUT and os.fspath(path).lower().endswith(".zip"):
        return _zipped(path)
    with open_text(path) as lines:
        return list(lines)


def _zipped(path: str | os.PathLike[str]) -> list[str]:
    if not os.path.isfile(path):
        raise InputError(f"there is no file {os.fspath(path)}; expected a .zip with one text inside")
    try:
        with zipfile.ZipFile(path) as archive:
            member = _only(archive, os.fspath(path))
            data = archive.read(member)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise InputError(
            f"{os.fspath(path)} cannot be unpacked ({error}): copy or download it again, or unpack it yourself"
        ) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{os.fspath(path)}, {member.filename} line {line}: byte 0x{data[error.start]:02x} is not UTF-8; "
            "unpack and convert it"
        ) from None
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _only(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    """The one text of an archive; notes beside it (`_about.txt`, README) do not count."""
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
    if texts[0].file_size > LARGEST:
        raise InputError(f"{name}: {texts[0].filename} unpacks to more than {LARGEST:,} bytes; unpack it yourself")
    return texts[0]
