"""The folder of a corpus: what lies in it, what of it can be kept, and what has no place there.

manifest.json   what the corpus was built from; lists the shards once it is finished
report.json     counts and speed of the build
tokenizer/      as Tokenizer.open reads it
shard-000000/   and so on; see `shards`
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from regard.data.corpus.shards import (
    DOCUMENTS,
    RECORD,
    SENTENCES,
    TOKENS,
    CorpusCounts,
    ShardRecord,
    as_count,
    read_record,
)
from regard.errors import InputError, RegardError
from regard.files.checksums import Verify, find_damage, sha256_of
from regard.files.disk import atomic_write
from regard.files.folder_lock import LOCK, describe_changes
from regard.files.json_files import json_bytes, read_checked_json, with_checksum
from regard.files.output_folder import foreign_entries, remove_files
from regard.text import Tokenizer
from regard.text.tokenizer import TOKENIZER_FILES

__all__ = [
    "MANIFEST",
    "REPORT",
    "TOKENIZER",
    "CorpusManifest",
    "CorpusProgress",
    "CorpusReport",
    "SourceFile",
    "begin",
    "clear",
    "leave",
    "refuse_foreign_files",
    "shard_files",
    "shard_folder",
    "source_of",
    "tokenizer_digest",
    "tokenizer_files",
    "tokenizer_paths",
]


REPORT = "report.json"


@dataclass(frozen=True)
class CorpusProgress:
    """`done` of `documents` are encoded, `resumed` of them by an earlier run; `tokens` so far."""

    done: int
    documents: int
    resumed: int
    tokens: int


@dataclass(frozen=True)
class CorpusReport:
    """What a corpus holds, and what this run did: `resumed` is what was there already, `seconds` those of the rest."""

    counts: CorpusCounts
    sources: int
    skipped: tuple[str, ...]
    shards: int
    vocabulary: int
    resumed: CorpusCounts
    seconds: float

    @property
    def one_document(self) -> bool:
        """Whether no pair of sentences from two documents can be made."""
        return self.counts.documents == 1

    @property
    def tokens_per_second(self) -> float:
        return (self.counts.tokens - self.resumed.tokens) / max(self.seconds, 1e-9)

    @property
    def bytes_per_second(self) -> float:
        return (self.counts.bytes - self.resumed.bytes) / max(self.seconds, 1e-9)

    @property
    def notes(self) -> list[str]:
        """What a reader should know, in sentences; empty where all is as it should be."""
        found = []
        if self.one_document:
            found.append(
                "The corpus is one document, so next-sentence pairs cannot be made: put a blank line between documents."
            )
        if self.skipped:
            names = ", ".join(self.skipped[:5]) + (" and others" if len(self.skipped) > 5 else "")
            found.append(f"Skipped {len(self.skipped)} files that are no text by their names: {names}.")
        if self.counts.unknown > self.counts.tokens // 100:
            share = 100 * self.counts.unknown / self.counts.tokens
            found.append(
                f"The tokenizer does not know {share:.1f}% of the tokens: it may be made for another language."
            )
        return found

    def json(self) -> dict[str, object]:
        speeds = {
            "tokens_per_second": round(self.tokens_per_second, 1),
            "bytes_per_second": round(self.bytes_per_second, 1),
        }
        return asdict(self) | speeds | {"notes": self.notes}


MANIFEST = "manifest.json"
FORMAT = 1
FILES = "tokenizer_files"
LIMIT = 1 << 30  # bytes of manifest: a thousand files or shards need half a megabyte


@dataclass(frozen=True)
class SourceFile:
    """A file of text, by its name and by its content."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class CorpusManifest:
    """The record of a build; `shards` is None until the corpus is finished."""

    sources: tuple[SourceFile, ...]
    tokenizer: str
    vocabulary: int
    settings: Mapping[str, object]
    shards: tuple[ShardRecord, ...] | None = None
    tokenizer_files: Mapping[str, tuple[int, str]] = field(default_factory=dict)  # size and SHA-256; older have none

    def json(self) -> dict[str, object]:
        return {
            "format": FORMAT,
            "sources": [vars(source) for source in self.sources],
            "tokenizer": self.tokenizer,
            FILES: {name: list(file) for name, file in self.tokenizer_files.items()},
            "vocabulary": self.vocabulary,
            "settings": dict(self.settings),
            "shards": None if self.shards is None else [shard.json() for shard in self.shards],
        }

    def write(self, folder: Path) -> None:
        """Write it into a folder, with a checksum of its own."""
        atomic_write(folder / MANIFEST, json_bytes(with_checksum(self.json())))

    @classmethod
    def read(cls, folder: Path) -> CorpusManifest:
        path = folder / MANIFEST
        try:
            value: Any = read_checked_json(path, limit=LIMIT)
        except InputError as error:
            raise InputError(f"{error}; put a copy of it back, or build the corpus again") from None
        if value.get("format") != FORMAT:
            raise InputError(f"{path}: expected format {FORMAT}, got {value.get('format')!r}; build the corpus again")
        try:
            sources = tuple(
                SourceFile(str(s["name"]), as_count(s["bytes"]), str(s["sha256"])) for s in value["sources"]
            )
            shards = value["shards"]
            records = None if shards is None else tuple(ShardRecord.of(shard, path) for shard in shards)
            files = {str(name): (as_count(size), str(digest)) for name, (size, digest) in value.get(FILES, {}).items()}
            return cls(
                sources, str(value["tokenizer"]), as_count(value["vocabulary"]), dict(value["settings"]), records, files
            )
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} is no record of a corpus ({error!r}); build the corpus again") from None

    def differences(self, now: CorpusManifest) -> list[str]:
        """What is otherwise now, in words; empty where the work of the one can be taken for the other's."""
        found = _changed(self.sources, now.sources)
        if self.tokenizer != now.tokenizer:
            found.append("the tokenizer changed")
        return found + describe_changes(self.settings, now.settings)


def source_of(path: Path) -> SourceFile:
    return SourceFile(path.as_posix(), path.stat().st_size, sha256_of(path))


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of each file that a tokenizer is saved as."""
    return {name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in tokenizer.files().items()}


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    digest = hashlib.sha256()
    for name, data in sorted(tokenizer.files().items()):
        digest.update(f"{name}:{len(data)}:".encode() + data)
    return digest.hexdigest()


def _changed(before: Sequence[SourceFile], now: Sequence[SourceFile]) -> list[str]:
    if len(before) != len(now):
        return [f"it was of {len(before)} source files and now is of {len(now)}"]
    found = [
        f"the source {new.name} changed" if old.name == new.name else f"{new.name} is not what {old.name} was"
        for old, new in zip(before, now, strict=True)
        if (old.bytes, old.sha256) != (new.bytes, new.sha256)
    ]
    return found if len(found) < 4 else [*found[:3], f"and {len(found) - 3} more sources"]


TOKENIZER = "tokenizer"
SHARD_FILES = (TOKENS, SENTENCES, DOCUMENTS, RECORD)
SHARD = re.compile(r"shard-(\d{6,})")
OURS = re.compile(rf"{MANIFEST}|{REPORT}|{LOCK}|{TOKENIZER}|{SHARD.pattern}|\..+\.partial(\.\w+)?")


def shard_folder(folder: Path, number: int) -> Path:
    """Where a corpus keeps a shard."""
    return folder / f"shard-{number:06d}"


def shard_files(records: Iterable[ShardRecord]) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of every file of the shards, by its path in the corpus."""
    return {
        f"shard-{number:06d}/{name}": file
        for number, record in enumerate(records)
        for name, file in record.files.items()
    }


def tokenizer_paths(manifest: CorpusManifest) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of every file of the tokenizer, by its path in the corpus; older corpora do not know them."""
    return {f"{TOKENIZER}/{name}": file for name, file in manifest.tokenizer_files.items()}


def refuse_foreign_files(folder: Path) -> None:
    """InputError where the folder holds what is not of a corpus: it may be somebody's work.

    The manifest is the first file of a corpus, so that what lies in a folder without one is not Regard's.
    """
    present = foreign_entries(folder)
    strange = [name for name in present if MANIFEST not in present or not OURS.fullmatch(name)]
    if strange:
        raise InputError(f"{folder} is in the way: it holds {strange[0]!r}; move it, or choose another folder")
    if present and not _numbers(folder):  # then nothing but the manifest shows that it is a corpus
        try:
            CorpusManifest.read(folder)
        except InputError as error:
            raise InputError(f"{folder} is in the way: {error}. Move it, or choose another folder") from None


def begin(
    folder: Path, manifest: CorpusManifest, *, restart: bool, verify: Verify = "auto", on_damaged: Callable[[str], None]
) -> tuple[list[ShardRecord], bool]:
    """The shards that are there and belong to this manifest, and whether they are all; never another's.

    A shard that is damaged is described to `on_damaged`, and is no longer there, like those behind it.
    """
    remedy = "Use another folder, or throw that corpus away: restart=True, or delete the folder"
    try:
        old = None if restart or not (folder / MANIFEST).exists() else CorpusManifest.read(folder)
    except InputError as error:
        raise InputError(f"{folder} holds a corpus, but {error}. {remedy}") from None
    if old is None or not _numbers(folder):
        clear(folder)
        manifest.write(folder)
        return [], False
    if changed := old.differences(manifest):
        raise InputError(f"{folder} holds another corpus: {'; '.join(changed)}. {remedy}")
    whole = _whole(folder, old, verify, on_damaged)
    if old.shards is not None and list(old.shards) == whole:
        return whole, True
    # Something of it is missing or damaged: what is good up to there stays.
    for number in range(len(whole), 1 + max(_numbers(folder))):
        remove_files(folder, [f"{shard_folder(folder, number).name}/{name}" for name in SHARD_FILES])
    manifest.write(folder)
    return whole, False


def clear(folder: Path) -> None:
    """Throw the corpus away, file by file; the lock stays, and so does what someone else has put there."""
    shards = [f"{shard_folder(folder, number).name}/{name}" for number in _numbers(folder) for name in SHARD_FILES]
    tokenizer = [f"{TOKENIZER}/{name}" for name in TOKENIZER_FILES]
    if not remove_files(folder, [*shards, *tokenizer, REPORT, MANIFEST]):  # in this order: what is left stays known
        raise RegardError(f"{folder}: the earlier corpus cannot be deleted; check that you may write there")


def leave(folder: Path) -> None:
    """Give the folder back; where nothing is finished, nothing stays."""
    if not _numbers(folder):
        clear(folder)
    (folder / LOCK).unlink(missing_ok=True)
    with suppress(OSError):  # it holds a corpus, or something that is not ours to remove
        folder.rmdir()


def _whole(
    folder: Path, manifest: CorpusManifest, verify: Verify, on_damaged: Callable[[str], None]
) -> list[ShardRecord]:
    """The records of the shards from the first to the last before a missing or damaged one."""
    found: list[ShardRecord] = []
    try:
        while (place := shard_folder(folder, len(found))).is_dir():
            record = read_record(place)
            if manifest.shards is not None and record not in manifest.shards[len(found) : len(found) + 1]:
                raise InputError(f"{place / RECORD} is damaged: it is not what {MANIFEST} says of this shard")
            found.append(record)
    except InputError as error:
        on_damaged(str(error))
    damage = find_damage(folder, shard_files(found), verify=verify)
    for name, what in damage.items():
        on_damaged(f"{folder / name} {what}")
    return found[: min((int(SHARD.match(name)[1]) for name in damage), default=len(found))]  # type: ignore[index]


def _numbers(folder: Path) -> list[int]:
    return [int(match[1]) for name in os.listdir(folder) if (match := SHARD.fullmatch(name))]
