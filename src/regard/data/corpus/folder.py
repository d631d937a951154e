"""The folder of a corpus: its manifest, its shards, and what of it can be reused.

regard.json     sources, tokenizer and settings; also lists the shards when the corpus is finished
report.json     counts and speed of the build
tokenizer/      for Tokenizer.open
vocabulary/     the same tokenizer and what it was trained on, if it was trained for this corpus
shard-000000/   and so on, each written atomically:
  tokens.bin      all token ids: little-endian uint16, or uint32 for large vocabularies
  sentences.npy   int64, offset of each sentence in tokens.bin, followed by the number of tokens
  documents.npy   int64, offset of each document in sentences.npy, followed by the number of sentences
  shard.json      counts, the position in the sources where the next shard starts, size and SHA-256 of the other
                  files, and its own checksum
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError

from regard.errors import InputError
from regard.files.checksums import Verify, file_states, find_damage, sha256_of
from regard.files.durable_folder import RECORD as DURABLE_RECORD
from regard.files.durable_folder import DurableFolder, FolderRecord, describe_changes
from regard.files.json_files import json_bytes, read_checked_json, with_checksum
from regard.files.storage import Address, FileIdentity, is_remote, join, normalize
from regard.text import Tokenizer
from regard.text.tokenizer import TOKENIZER_FILES

TOKENS, SENTENCES, DOCUMENTS, RECORD = "tokens.bin", "sentences.npy", "documents.npy", "shard.json"
REMEDY = "build the corpus again from its sources: only missing and damaged shards are rebuilt"
MANIFEST = DURABLE_RECORD
REPORT = "report.json"
TOKENIZER = "tokenizer"
VOCABULARY = "vocabulary"
ORIGIN = "origin.json"  # how and on what a vocabulary was trained
SHARD = re.compile(r"shard-(\d{6,})")
SHARD_FILES = (TOKENS, SENTENCES, DOCUMENTS, RECORD)
Ids = NDArray[Any]
Sizes = NDArray[np.int64]
Count = Annotated[int, Field(strict=True, ge=0)]
FileState = tuple[Count, str]  # size, SHA-256


@dataclass(frozen=True)
class CorpusCounts:
    """Counts of a corpus or a shard; `bytes` are those of the text, `dropped` counts sentences without tokens."""

    documents: Count = 0
    paragraphs: Count = 0
    sentences: Count = 0
    tokens: Count = 0
    bytes: Count = 0
    unknown: Count = 0
    longest_sentence: Count = 0
    dropped: Count = 0

    def __add__(self, other: CorpusCounts) -> CorpusCounts:
        sums = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        return CorpusCounts(**sums | {"longest_sentence": max(self.longest_sentence, other.longest_sentence)})


@dataclass(frozen=True)
class ShardRecord:
    """Counts of a shard, (source, document) where the next one starts, and name -> (size, SHA-256) of its files."""

    counts: CorpusCounts
    next: tuple[Count, Count]
    files: Mapping[str, FileState]

    @classmethod
    def read(cls, folder: Path) -> ShardRecord:
        """Read the record of a finished shard."""
        path = folder / RECORD
        try:
            record = TypeAdapter(cls).validate_python(read_checked_json(path))
        except ValidationError as error:
            raise InputError(f"{path} is not the record of a shard ({_reason(error)}); {REMEDY}") from None
        if record.files.keys() != {TOKENS, SENTENCES, DOCUMENTS}:
            raise InputError(f"{path} is not the record of a shard: it lists {sorted(record.files)}; {REMEDY}")
        return record


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

    def add(self, ids: Ids, sizes: Sizes, counts: Sequence[int]) -> None:
        """Add documents: the ids of their sentences, the number of ids of each, and how many each document has.

        Sentences without tokens and documents without sentences are dropped.
        """
        kept = sizes > 0
        ends = self.tokens + np.cumsum(sizes[kept])
        documents = np.repeat(np.arange(len(counts)), counts)
        lengths = np.bincount(documents[kept], minlength=len(counts))
        self._sentences.frombytes(ends.astype(np.int64).tobytes())
        self._documents.frombytes((self._documents[-1] + np.cumsum(lengths[lengths > 0])).astype(np.int64).tobytes())
        self._dropped += int((~kept).sum())
        self._longest = max(self._longest, int(sizes.max(initial=0)))
        if self._unknown is not None:
            self._unknowns += int((ids == self._unknown).sum())
        self._file.write(ids.astype(self._dtype).tobytes())

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
        record = ShardRecord(counts, next, file_states(self._folder, (TOKENS, SENTENCES, DOCUMENTS)))
        (self._folder / RECORD).write_bytes(json_bytes(with_checksum(asdict(record))))
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
        for name, problem in find_damage(folder, record.files, verify="never").items():
            raise InputError(f"{folder / name} {problem}; {REMEDY}")
        counts = record.counts
        tokens = memory_map(folder / TOKENS, dtype)
        sentences, documents = memory_map(folder / SENTENCES), memory_map(folder / DOCUMENTS)
        sizes = [len(tokens), len(sentences) - 1, len(documents) - 1, int(sentences[-1]), int(documents[-1])]
        expected = [counts.tokens, counts.sentences, counts.documents, counts.tokens, counts.sentences]
        if sizes != expected:
            raise InputError(f"{folder} is damaged: its sizes are {sizes}, expected {expected}; {REMEDY}")
        return cls(tokens, sentences, documents)


def memory_map(path: Path, dtype: np.dtype[Any] | None = None) -> Ids:
    """Map a file: tokens of a type, or else offsets with their own type."""
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


@dataclass(frozen=True)
class CorpusProgress:
    """Progress of a build: `done` of `documents` are encoded, `resumed` of them by an earlier run."""

    done: int
    documents: int
    resumed: int
    tokens: int


@dataclass(frozen=True)
class CorpusReport:
    """The contents of a corpus: `resumed` counts the part from earlier runs; `seconds` is the time for the rest."""

    counts: CorpusCounts
    sources: int
    skipped: tuple[str, ...]
    shards: int
    vocabulary: int
    resumed: CorpusCounts
    seconds: float

    @property
    def notes(self) -> list[str]:
        """Warnings about the corpus, as sentences."""
        notes = []
        if self.counts.documents == 1:
            notes.append(
                "The corpus is one document, so next-sentence pairs cannot be made: put a blank line between documents."
            )
        if self.skipped:
            names = ", ".join(self.skipped[:5]) + (" and others" if len(self.skipped) > 5 else "")
            notes.append(f"Skipped {len(self.skipped)} files whose names are not those of text files: {names}.")
        if self.counts.unknown > self.counts.tokens // 100:
            percentage = 100 * self.counts.unknown / self.counts.tokens
            notes.append(
                f"The tokenizer does not know {percentage:.1f}% of the tokens: it may be made for another language."
            )
        return notes

    def json(self) -> dict[str, object]:
        seconds = max(self.seconds, 1e-9)
        speeds = {
            f"{unit}_per_second": round((getattr(self.counts, unit) - getattr(self.resumed, unit)) / seconds, 1)
            for unit in ("tokens", "bytes")
        }
        return asdict(self) | speeds | {"notes": self.notes}


@dataclass(frozen=True)
class SourceFile:
    """A text file: its name and the size and hash of its content."""

    name: str
    bytes: Count
    sha256: str


@dataclass(frozen=True)
class CorpusManifest:
    """Sources, tokenizer and settings of a corpus; `shards` is None until it is finished."""

    sources: tuple[SourceFile, ...]
    tokenizer: str
    vocabulary: Count
    settings: Mapping[str, object]
    tokenizer_files: Mapping[str, FileState]
    shards: tuple[ShardRecord, ...] | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """What shards can be reused for."""
        return {name: value for name, value in asdict(self).items() if name != "shards"}

    @classmethod
    def of(cls, record: FolderRecord, folder: Address) -> CorpusManifest:
        try:
            return TypeAdapter(cls).validate_python({**record.identity, **record.outcome})
        except ValidationError as error:
            raise InputError(
                f"{join(folder, MANIFEST)} is not the manifest of a corpus ({_reason(error)}); build the corpus again"
            ) from None

    def differences(self, now: CorpusManifest) -> list[str]:
        """Describe what changed; empty if shards of this manifest can be used for `now`."""
        changes = _source_changes(self.sources, now.sources)
        if self.tokenizer != now.tokenizer:
            changes.append("the tokenizer changed")
        return changes + describe_changes(self.settings, now.settings)


def _reason(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def source_of(path: str | Path, identity: FileIdentity) -> SourceFile:
    """Describe a source. A file of an object store is identified by its ETag: hashing it would mean to fetch it."""
    if is_remote(path):
        return SourceFile(normalize(path), identity.size, f"etag:{identity.version}")
    return SourceFile(Path(path).as_posix(), identity.size, sha256_of(Path(path)))


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, FileState]:
    """Return the size and SHA-256 of each file of a saved tokenizer."""
    return {name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in tokenizer.files().items()}


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    digest = hashlib.sha256()
    for name, data in sorted(tokenizer.files().items()):
        digest.update(f"{name}:{len(data)}:".encode() + data)
    return digest.hexdigest()


def _source_changes(before: Sequence[SourceFile], now: Sequence[SourceFile]) -> list[str]:
    if len(before) != len(now):
        return [f"it had {len(before)} source files and now has {len(now)}"]
    changes = [
        f"the source {new.name} changed" if old.name == new.name else f"{new.name} differs from {old.name}"
        for old, new in zip(before, now, strict=True)
        if (old.bytes, old.sha256) != (new.bytes, new.sha256)
    ]
    return changes if len(changes) < 4 else [*changes[:3], f"and {len(changes) - 3} more sources"]


def shard_folder(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:06d}"


def shard_files(records: Iterable[ShardRecord]) -> dict[str, FileState]:
    """Return the size and SHA-256 of every file of the shards, by its path in the corpus."""
    return {
        f"shard-{number:06d}/{name}": file
        for number, record in enumerate(records)
        for name, file in record.files.items()
    }


def tokenizer_paths(manifest: CorpusManifest) -> dict[str, FileState]:
    """Return the size and SHA-256 of the tokenizer's files, by path in the corpus."""
    return {f"{TOKENIZER}/{name}": file for name, file in manifest.tokenizer_files.items()}


def corpus_folder(folder: Path) -> DurableFolder:
    """Return a corpus as a durable folder. A vocabulary may be there before it: trained, but nothing is encoded yet."""
    shards = (f"shard-#/{name}" for name in SHARD_FILES)
    return DurableFolder(
        folder,
        kind="corpus",
        part="shard-#",
        files=(*shards, *(f"{TOKENIZER}/{name}" for name in TOKENIZER_FILES), REPORT),
        beside=(VOCABULARY,) if (folder / VOCABULARY / ORIGIN).is_file() else (),
        hint="Use another folder, or delete that corpus: pass restart=True, or delete the folder",
    )


def begin(
    durable: DurableFolder,
    manifest: CorpusManifest,
    *,
    restart: bool,
    verify: Verify,
    on_damaged: Callable[[str], None],
) -> tuple[list[ShardRecord], bool]:
    """Begin or continue a build; return the shards that can be reused, and whether the corpus is complete.

    A damaged shard is reported to `on_damaged` and deleted together with the shards after it.
    """

    def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
        return CorpusManifest.of(FolderRecord(durable.record.kind, identity=before), durable.path).differences(manifest)

    before = durable.begin(manifest.identity, restart=restart, differences=differences)
    if before is None:
        return [], False
    listed = CorpusManifest.of(before, durable.path).shards
    intact = _intact_shards(durable.path, listed, verify, on_damaged)
    if listed is not None and list(listed) == intact:
        return intact, True
    for number in durable.parts():
        if number >= len(intact):
            durable.remove_part(number)
    durable.finish(None)
    return intact, False


def _intact_shards(
    folder: Path, listed: Sequence[ShardRecord] | None, verify: Verify, on_damaged: Callable[[str], None]
) -> list[ShardRecord]:
    """Return the records of the shards before the first missing or damaged one."""
    records: list[ShardRecord] = []
    try:
        while (shard := shard_folder(folder, len(records))).is_dir():
            record = ShardRecord.read(shard)
            if listed is not None and record not in listed[len(records) : len(records) + 1]:
                raise InputError(f"{shard / RECORD} is damaged: it does not match {MANIFEST}")
            records.append(record)
    except InputError as error:
        on_damaged(str(error))
    damage = find_damage(folder, shard_files(records), verify=verify)
    for name, problem in damage.items():
        on_damaged(f"{folder / name} {problem}")
    return records[: min((int(SHARD.match(name)[1]) for name in damage), default=len(records))]  # type: ignore[index]
