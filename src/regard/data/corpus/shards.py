"""Shards: token ids on the disk with the places where sentences and documents begin.

A shard is a folder that appears whole:

    tokens.bin      every id of the shard, one after the other: little-endian uint16, or uint32 for large vocabularies
    sentences.npy   int64, where each sentence begins in tokens.bin, and at the end how many tokens there are
    documents.npy   int64, where each document begins in sentences.npy, and at the end how many sentences there are
    shard.json      counts, the place in the sources where the next shard begins, size and SHA-256 of the others, and
                    a checksum of its own
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError
from regard.files.checksums import find_damage, sha256_of
from regard.files.json_files import json_bytes, read_checked_json, with_checksum

__all__ = [
    "REMEDY",
    "CorpusCounts",
    "Shard",
    "ShardRecord",
    "ShardWriter",
    "as_count",
    "check",
    "read_record",
    "token_type",
]

TOKENS, SENTENCES, DOCUMENTS, RECORD = "tokens.bin", "sentences.npy", "documents.npy", "shard.json"
REMEDY = "build the corpus again from its sources: what is whole is kept, and the rest is made anew"
Ids = NDArray[Any]


@dataclass(frozen=True)
class CorpusCounts:
    """What a stretch of corpus holds; `bytes` are those of its text, `dropped` sentences that have no token."""

    documents: int = 0
    paragraphs: int = 0
    sentences: int = 0
    tokens: int = 0
    bytes: int = 0
    unknown: int = 0
    longest_sentence: int = 0
    dropped: int = 0

    def __add__(self, other: CorpusCounts) -> CorpusCounts:
        both = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        return CorpusCounts(**both | {"longest_sentence": max(self.longest_sentence, other.longest_sentence)})


@dataclass(frozen=True)
class ShardRecord:
    """A shard's counts, (source, document) where the next one begins, and name -> (size, SHA-256) of its files."""

    counts: CorpusCounts
    next: tuple[int, int]
    files: Mapping[str, tuple[int, str]]

    def json(self) -> dict[str, object]:
        return {
            "counts": asdict(self.counts),
            "next": list(self.next),
            "files": {name: list(file) for name, file in self.files.items()},
        }

    @classmethod
    def of(cls, value: object, name: object) -> ShardRecord:
        """The record in a JSON value; `name` is how an error calls its file."""
        try:
            found: Any = value
            source, document = map(as_count, found["next"])
            files = {str(key): (as_count(size), str(digest)) for key, (size, digest) in found["files"].items()}
            if files.keys() != {TOKENS, SENTENCES, DOCUMENTS}:
                raise ValueError(f"files {sorted(files)}")
            counts = CorpusCounts(**{key: as_count(count) for key, count in found["counts"].items()})
            return cls(counts, (source, document), files)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise InputError(f"{name} is no record of a shard ({error}); build the corpus again") from None


def as_count(value: object) -> int:
    """A value that counts something; ValueError where it is no whole number from 0."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{str(value)[:40]!r} is no count")
    return value


def token_type(vocabulary: int) -> np.dtype[Any]:
    """The smallest type that holds every id of a vocabulary."""
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")


class ShardWriter:
    """Writes one shard into a folder, batch by batch; ids go to the disk at once, only the starts are kept."""

    def __init__(self, folder: Path, *, dtype: np.dtype[Any], unknown: int | None) -> None:
        self._folder, self._dtype, self._unknown = folder, dtype, unknown
        self._file = (folder / TOKENS).open("wb")
        self._sentences, self._documents = array("q", [0]), array("q", [0])
        self._unknowns = self._dropped = self._longest = 0

    @property
    def tokens(self) -> int:
        return self._sentences[-1]

    def add(self, documents: Iterable[list[list[int]]]) -> None:
        """Documents as lists of sentences; sentences without a token are left out, and documents without a sentence."""
        flat: list[int] = []
        for document in documents:
            kept = [sentence for sentence in document if sentence]
            self._dropped += len(document) - len(kept)
            for sentence in kept:
                flat += sentence
                self._longest = max(self._longest, len(sentence))
                self._sentences.append(self._sentences[-1] + len(sentence))
            if kept:
                self._documents.append(self._documents[-1] + len(kept))
        ids = np.array(flat, dtype=self._dtype)
        if self._unknown is not None:
            self._unknowns += int((ids == self._unknown).sum())
        self._file.write(ids.tobytes())

    def finish(self, *, paragraphs: int, size: int, next: tuple[int, int]) -> ShardRecord:
        """Write the rest; what is not counted here is told: paragraphs and bytes of text, and where to go on."""
        self._file.close()
        for name, starts in ((SENTENCES, self._sentences), (DOCUMENTS, self._documents)):
            np.save(self._folder / name, np.array(starts, dtype="<i8"))
        counts = CorpusCounts(
            documents=len(self._documents) - 1,
            paragraphs=paragraphs,
            sentences=len(self._sentences) - 1,
            tokens=self._sentences[-1],
            bytes=size,
            unknown=self._unknowns,
            longest_sentence=self._longest,
            dropped=self._dropped,
        )
        files = {name: _identity(self._folder / name) for name in (TOKENS, SENTENCES, DOCUMENTS)}
        record = ShardRecord(counts, next, files)
        (self._folder / RECORD).write_bytes(json_bytes(with_checksum(record.json())))
        return record

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class Shard:
    """The arrays of a shard, mapped from the disk and read-only."""

    tokens: Ids
    sentences: NDArray[np.int64]
    documents: NDArray[np.int64]

    @classmethod
    def open(cls, folder: Path, record: ShardRecord, *, dtype: np.dtype[Any]) -> Shard:
        """Map the files; InputError names the one that is missing or not what the record says."""
        check(folder, record)
        counts = record.counts
        tokens = _mapped(folder / TOKENS, dtype)
        sentences, documents = _mapped(folder / SENTENCES), _mapped(folder / DOCUMENTS)
        found = [len(tokens), len(sentences) - 1, len(documents) - 1, int(sentences[-1]), int(documents[-1])]
        expected = [counts.tokens, counts.sentences, counts.documents, counts.tokens, counts.sentences]
        if found != expected:
            raise InputError(f"{folder} is damaged: it holds {found}, expected {expected}; {REMEDY}")
        return cls(tokens, sentences, documents)


def check(folder: Path, record: ShardRecord) -> None:
    """InputError for a file of the shard that is missing or of another size; the content is not looked at."""
    for name, what in find_damage(folder, record.files, verify="never").items():
        raise InputError(f"{folder / name} {what}; {REMEDY}")


def read_record(folder: Path) -> ShardRecord:
    """The record of a finished shard."""
    return ShardRecord.of(read_checked_json(folder / RECORD), folder / RECORD)


def _mapped(path: Path, dtype: np.dtype[Any] | None = None) -> Ids:
    try:
        if dtype is not None:
            mapped: Ids = np.memmap(path, dtype=dtype, mode="r")
        else:
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            if mapped.dtype != np.dtype("<i8") or mapped.ndim != 1 or not len(mapped):
                raise ValueError(f"type {mapped.dtype}, shape {mapped.shape}")
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} is damaged ({error}); {REMEDY}") from None
    return mapped.view(np.ndarray)  # slices of a plain array cost a fraction of a memmap's


def _identity(path: Path) -> tuple[int, str]:
    return path.stat().st_size, sha256_of(path)
