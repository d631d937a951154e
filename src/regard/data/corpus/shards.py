"""Shards: token ids on disk with the offsets of sentences and documents.

A shard is a folder that is written atomically:

    tokens.bin      all token ids: little-endian uint16, or uint32 for large vocabularies
    sentences.npy   int64, offset of each sentence in tokens.bin, followed by the number of tokens
    documents.npy   int64, offset of each document in sentences.npy, followed by the number of sentences
    shard.json      counts, the position in the sources where the next shard starts, size and SHA-256 of the other
                    files, and its own checksum
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

TOKENS, SENTENCES, DOCUMENTS, RECORD = "tokens.bin", "sentences.npy", "documents.npy", "shard.json"
REMEDY = "build the corpus again from its sources: only missing and damaged shards are rebuilt"
Ids = NDArray[Any]


@dataclass(frozen=True)
class CorpusCounts:
    """Counts of a corpus or a shard; `bytes` are those of the text, `dropped` counts sentences without tokens."""

    documents: int = 0
    paragraphs: int = 0
    sentences: int = 0
    tokens: int = 0
    bytes: int = 0
    unknown: int = 0
    longest_sentence: int = 0
    dropped: int = 0

    def __add__(self, other: CorpusCounts) -> CorpusCounts:
        sums = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        return CorpusCounts(**sums | {"longest_sentence": max(self.longest_sentence, other.longest_sentence)})


@dataclass(frozen=True)
class ShardRecord:
    """Counts of a shard, (source, document) where the next one starts, and name -> (size, SHA-256) of its files."""

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
        """Parse a record from a JSON value; `name` is the name of its file in errors."""
        try:
            record: Any = value
            source, document = map(as_count, record["next"])
            files = {str(key): (as_count(size), str(digest)) for key, (size, digest) in record["files"].items()}
            if files.keys() != {TOKENS, SENTENCES, DOCUMENTS}:
                raise ValueError(f"files {sorted(files)}")
            counts = CorpusCounts(**{key: as_count(count) for key, count in record["counts"].items()})
            return cls(counts, (source, document), files)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise InputError(f"{name} is not the record of a shard ({error}); build the corpus again") from None


def as_count(value: object) -> int:
    """Return the value. Raises ValueError if it is not a nonnegative integer."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{str(value)[:40]!r} is not a count")
    return value


def token_type(vocabulary: int) -> np.dtype[Any]:
    """Return the smallest dtype for the ids of a vocabulary."""
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")


class ShardWriter:
    """Writes one shard into a folder, batch by batch; only the offsets are held in memory."""

    def __init__(self, folder: Path, *, dtype: np.dtype[Any], unknown: int | None) -> None:
        self._folder, self._dtype, self._unknown = folder, dtype, unknown
        self._file = (folder / TOKENS).open("wb")
        self._sentences, self._documents = array("q", [0]), array("q", [0])
        self._unknowns = self._dropped = self._longest = 0

    @property
    def tokens(self) -> int:
        return self._sentences[-1]

    def add(self, documents: Iterable[list[list[int]]]) -> None:
        """Add documents (lists of sentences); sentences without tokens and documents without sentences are dropped."""
        flat: list[int] = []
        for document in documents:
            sentences = [sentence for sentence in document if sentence]
            self._dropped += len(document) - len(sentences)
            for sentence in sentences:
                flat += sentence
                self._longest = max(self._longest, len(sentence))
                self._sentences.append(self._sentences[-1] + len(sentence))
            if sentences:
                self._documents.append(self._documents[-1] + len(sentences))
        ids = np.array(flat, dtype=self._dtype)
        if self._unknown is not None:
            self._unknowns += int((ids == self._unknown).sum())
        self._file.write(ids.tobytes())

    def finish(self, *, paragraphs: int, size: int, next: tuple[int, int]) -> ShardRecord:
        """Write the offsets and the record. `size` is in bytes of text; `next` is where the next shard starts."""
        self._file.close()
        for name, offsets in ((SENTENCES, self._sentences), (DOCUMENTS, self._documents)):
            np.save(self._folder / name, np.array(offsets, dtype="<i8"))
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
        paths = [self._folder / name for name in (TOKENS, SENTENCES, DOCUMENTS)]
        record = ShardRecord(counts, next, {path.name: (path.stat().st_size, sha256_of(path)) for path in paths})
        (self._folder / RECORD).write_bytes(json_bytes(with_checksum(record.json())))
        return record

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class Shard:
    """The memory-mapped arrays of a shard, read-only."""

    tokens: Ids
    sentences: NDArray[np.int64]
    documents: NDArray[np.int64]

    @classmethod
    def open(cls, folder: Path, record: ShardRecord, *, dtype: np.dtype[Any]) -> Shard:
        """Map the files. Raises InputError for a file that is missing or does not match the record."""
        check(folder, record)
        counts = record.counts
        tokens = _memory_map(folder / TOKENS, dtype)
        sentences, documents = _memory_map(folder / SENTENCES), _memory_map(folder / DOCUMENTS)
        sizes = [len(tokens), len(sentences) - 1, len(documents) - 1, int(sentences[-1]), int(documents[-1])]
        expected = [counts.tokens, counts.sentences, counts.documents, counts.tokens, counts.sentences]
        if sizes != expected:
            raise InputError(f"{folder} is damaged: its sizes are {sizes}, expected {expected}; {REMEDY}")
        return cls(tokens, sentences, documents)


def check(folder: Path, record: ShardRecord) -> None:
    """Raise InputError for a file of the shard that is missing or has another size; the content is not read."""
    for name, problem in find_damage(folder, record.files, verify="never").items():
        raise InputError(f"{folder / name} {problem}; {REMEDY}")


def read_record(folder: Path) -> ShardRecord:
    """Read the record of a finished shard."""
    return ShardRecord.of(read_checked_json(folder / RECORD), folder / RECORD)


def _memory_map(path: Path, dtype: np.dtype[Any] | None = None) -> Ids:
    try:
        if dtype is not None:
            mapped: Ids = np.memmap(path, dtype=dtype, mode="r")
        else:
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            if mapped.dtype != np.dtype("<i8") or mapped.ndim != 1 or not len(mapped):
                raise ValueError(f"type {mapped.dtype}, shape {mapped.shape}")
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} is damaged ({error}); {REMEDY}") from None
    return mapped.view(np.ndarray)  # slicing an ndarray is much faster than slicing a memmap
