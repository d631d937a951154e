"""Texts with their ids and kept columns on disk: one JSON object per line, and where each line begins.

Opening costs nothing, and reading a document reads its line only.
"""

from __future__ import annotations

import json
import math
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np

from regard.errors import RegardError
from regard.files.disk import replace_file

DOCUMENTS = "documents.jsonl"
OFFSETS = "offsets.npy"


@dataclass(frozen=True)
class IndexedText:
    """A text with its id, the number of its row, and the columns that were kept."""

    id: str | int
    row: int
    text: str
    columns: dict[str, Any] = field(default_factory=dict)


def write_documents(folder: Path, documents: Iterable[IndexedText]) -> Iterator[int]:
    """Write documents.jsonl and offsets.npy; yields the number of documents after each."""
    offsets = array("q", [0])
    with replace_file(folder / DOCUMENTS) as temporary, temporary.open("wb") as file:
        for number, one in enumerate(documents, 1):
            columns = {name: plain_value(value) for name, value in one.columns.items()}
            line = [plain_value(one.id), one.row, one.text, columns]
            # A text may hold lone surrogates, which a file of a table cannot but a Python string can.
            data = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
            file.write(data + b"\n")
            offsets.append(offsets[-1] + len(data) + 1)
            yield number
    with replace_file(folder / OFFSETS) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array(file, np.frombuffer(offsets, dtype=np.int64), allow_pickle=False)


def plain_value(value: Any) -> Any:
    """A value of a table as JSON holds it; a missing value is None."""
    if hasattr(value, "item") and not isinstance(value, str | bytes):  # a scalar of numpy
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return None if str(value) in ("NaT", "<NA>") else str(value)


class Documents:
    """The documents of a segment; reads those that are asked for."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / DOCUMENTS
        self._offsets = np.load(folder / OFFSETS, mmap_mode="r")
        self._file = self.path.open("rb")
        weakref.finalize(self, self._file.close)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, position: int) -> IndexedText:
        start, end = (int(value) for value in self._offsets[position : position + 2])
        self._file.seek(start)
        return self._parse(self._file.read(end - start))

    def __iter__(self) -> Iterator[IndexedText]:
        with self.path.open("rb") as file:
            yield from map(self._parse, file)

    def _parse(self, line: bytes) -> IndexedText:
        try:
            return IndexedText(*json.loads(line.decode("utf-8", "surrogatepass")))
        except (ValueError, TypeError) as error:
            raise RegardError(f"{self.path} is damaged ({error}); build the index again") from None


class DocumentTexts(Sequence[str]):
    """The texts of documents as a sequence that is read from the disk."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def __len__(self) -> int:
        return len(self._documents)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._documents[position].text for position in range(*index.indices(len(self)))]
        return self._documents[range(len(self))[index]].text

    def __iter__(self) -> Iterator[str]:
        return (document.text for document in self._documents)
