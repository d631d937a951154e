"""Reads GGUF files, the format of llama.cpp: metadata, and the names, shapes and bytes of tensors.

Files may come from untrusted sources: every count and offset is checked against the size of the file before it is used,
and nothing in the file is executed. The tensors stay on the disk until they are used. Does not depend on torch.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError
from regard.files.file_input import format_size, open_file

SUFFIX = ".gguf"
MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_HEADER = 64 << 20  # bytes before the tensors; a vocabulary of 262,144 tokens with its merges takes 16 MB
MAX_DIMENSIONS = 4
MAX_ELEMENTS = 1 << 40  # of a tensor
ALIGNMENT = 32  # of tensors, unless the metadata say otherwise
MAX_ALIGNMENT = 1 << 16
STRING, ARRAY, FLOAT32, BOOL = 8, 9, 6, 7
SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "<u1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
DAMAGED = "damaged or cut short; download or copy it again"
# The types of tensors by number: name, elements per block, bytes per block.
TENSOR_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    20: ("IQ4_NL", 32, 18),
    23: ("IQ4_XS", 256, 136),
    30: ("BF16", 1, 2),
}


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of the file: its shape with the outer dimension first, and where its bytes are."""

    shape: tuple[int, ...]
    type: str
    start: int
    size: int


@dataclass(frozen=True)
class GgufFile:
    """The metadata by key: numbers, texts, and lists of texts or arrays of numbers; and the tensors by name."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    @property
    def architecture(self) -> str:
        name = self.metadata.get("general.architecture")
        if not isinstance(name, str) or not name:
            raise InputError(f"{self.path}: general.architecture is missing, so the kind of the model is unknown")
        return name

    def bytes_of(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a tensor, memory mapped; writing to them does not change the file."""
        stored = self.tensors[name]
        return np.memmap(self.path, dtype=np.uint8, mode="c", offset=stored.start, shape=(stored.size,))


def find_gguf(path: str | os.PathLike[str]) -> Path | None:
    """The GGUF file of a model: the path itself, or the only one in a folder without config.json; None: no GGUF model.

    Raises InputError for a folder with several.
    """
    path = Path(path)
    if path.suffix.lower() == SUFFIX and not path.is_dir():
        return path
    if not path.is_dir() or (path / "config.json").is_file():
        return None
    found = sorted(entry for entry in path.iterdir() if entry.suffix.lower() == SUFFIX and entry.is_file())
    if len(found) > 1:
        names = ", ".join(entry.name for entry in found[:8]) + (" and more" if len(found) > 8 else "")
        raise InputError(f"{path}: expected one GGUF file, found {len(found)} ({names}); give the path of one of them")
    return found[0] if found else None


def read_gguf(path: str | os.PathLike[str]) -> GgufFile:
    """Read the metadata and the list of tensors; raise InputError for a file that is not a complete GGUF file."""
    path = Path(path)
    try:
        with open_file(path) as file:
            return _Header(file, path, os.fstat(file.fileno()).st_size).parse()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; expected a GGUF file") from None


class _Header:
    """The beginning of a file, parsed from front to back."""

    def __init__(self, file: BufferedReader, path: Path, file_size: int) -> None:
        self.file, self.path, self.file_size = file, path, file_size
        self.position = 0

    def parse(self) -> GgufFile:
        if (found := self.take(min(4, self.file_size))) != MAGIC:
            raise InputError(f"{self.path}: not a GGUF file: it begins with {found!r}, expected {MAGIC!r}")
        version = self.number("<u4")
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            kind = "a big-endian file" if swapped else f"version {version}"
            raise InputError(f"{self.path}: {kind}; expected version 2 or 3 in little-endian. Convert the model again")
        # An entry takes at least 13 bytes and a tensor at least 24: counts that do not fit are refused at once.
        num_tensors, num_entries = self.count(24, "tensors"), self.count(13, "metadata entries")
        metadata: dict[str, Any] = {}
        for _ in range(num_entries):
            key = self.text()
            if key in metadata:
                raise self.error(f"the metadata have {key[:80]!r} twice")
            metadata[key] = self.value(self.number("<u4"))
        return GgufFile(self.path, metadata, self.tensors(num_tensors, self.alignment(metadata)))

    def tensors(self, count: int, alignment: int) -> dict[str, GgufTensor]:
        listed = [self.tensor() for _ in range(count)]
        begin = -(-self.position // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        for name, shape, (kind, block, block_bytes), offset in listed:
            size = math.prod(shape) // block * block_bytes
            if name in tensors:
                raise self.error(f"tensor {name!r} is listed twice")
            if offset % alignment or begin + offset + size > self.file_size:
                raise self.error(
                    f"tensor {name!r} takes {size:,} bytes from byte {begin + offset:,} on, "
                    f"but the file has {self.file_size:,} bytes"
                )
            tensors[name] = GgufTensor(shape, kind, begin + offset, size)
        ends = sorted((stored.start, stored.start + stored.size) for stored in tensors.values())
        if any(end > start for (_, end), (start, _) in pairwise(ends)):
            raise self.error("its tensors overlap")
        return tensors

    def tensor(self) -> tuple[str, tuple[int, ...], tuple[str, int, int], int]:
        name = self.text()
        num_dimensions = self.number("<u4")
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            raise self.error(f"tensor {name[:80]!r} has {num_dimensions} dimensions, expected 1 to {MAX_DIMENSIONS}")
        shape = tuple(self.number("<u8") for _ in range(num_dimensions))[::-1]
        number, offset = self.number("<u4"), self.number("<u8")
        if number not in TENSOR_TYPES:
            known = ", ".join(kind for kind, _, _ in TENSOR_TYPES.values())
            raise InputError(
                f"{self.path}: tensor {name[:80]!r} has the type number {number}, which Regard does not read; "
                f"convert the model to one of {known}"
            )
        kind, block, _ = TENSOR_TYPES[number]
        if not 0 < math.prod(shape) <= MAX_ELEMENTS or shape[-1] % block:
            raise self.error(f"tensor {name[:80]!r} has shape {shape}, which a {kind} tensor cannot have")
        return name, shape, TENSOR_TYPES[number], offset

    def alignment(self, metadata: dict[str, Any]) -> int:
        value = metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(value, int) or not 8 <= value <= MAX_ALIGNMENT or value % 8:
            raise self.error(f"general.alignment is {value!r}, expected a multiple of 8 up to {MAX_ALIGNMENT}")
        return value

    def value(self, kind: int) -> Any:
        """A value of the metadata."""
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            return self.array()
        number = self.number(SCALARS[kind]) if kind in SCALARS else None
        if number is None or (kind == BOOL and number > 1):
            raise self.error(f"a metadata value has the type {kind} or is not of its type")
        # The shortest decimal number of a float32: 1e-05 instead of 9.999999747378752e-06.
        return bool(number) if kind == BOOL else float(str(np.float32(number))) if kind == FLOAT32 else number

    def array(self) -> Any:
        kind = self.number("<u4")
        if kind == STRING:
            return self.texts(self.count(8, "texts"))
        if kind not in SCALARS:
            raise self.error(f"a metadata array has items of the type {kind}; expected numbers or texts")
        dtype = np.dtype(SCALARS[kind])
        return np.frombuffer(self.take(self.count(dtype.itemsize, "numbers") * dtype.itemsize), dtype=dtype)

    def text(self) -> str:
        (text,) = self.texts(1)
        return text

    def texts(self, count: int) -> list[str]:
        """Read texts in a loop without other calls: vocabularies have a hundred thousand."""
        texts, read = [], self.file.read
        for _ in range(count):
            size = int.from_bytes(read(8), "little")
            self.position += 8 + size
            if self.position > min(self.file_size, MAX_HEADER):
                raise self.error(f"it claims a text of {size:,} bytes before byte {self.position:,}")
            try:
                texts.append(read(size).decode("utf-8"))
            except UnicodeDecodeError as error:
                raise self.error(f"a text is not UTF-8 ({error.reason})") from None
        return texts

    def count(self, item_size: int, what: str) -> int:
        """A number of items that take at least `item_size` bytes each."""
        count: int = self.number("<u8")
        if count * item_size > self.file_size - self.position:
            raise self.error(f"it claims {count:,} {what} at byte {self.position:,} of {self.file_size:,}")
        return count

    def number(self, dtype: str) -> Any:
        size = int(dtype[2])
        data = self.take(size)
        if dtype[1] == "f":
            return struct.unpack("<f" if size == 4 else "<d", data)[0]
        return int.from_bytes(data, "little", signed=dtype[1] == "i")

    def take(self, size: int) -> bytes:
        self.position += size
        if self.position > MAX_HEADER:
            raise self.error(f"its metadata take more than {format_size(MAX_HEADER)}")
        data = self.file.read(size)
        if len(data) < size:
            raise self.error(f"it ends at byte {self.file_size:,}, inside its metadata")
        return data

    def error(self, reason: str) -> InputError:
        return InputError(f"{self.path}: {reason}: {DAMAGED}")
