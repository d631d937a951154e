"""What a corpus folder was built from, and whether it is finished: manifest.json.

Knows hashes and JSON. Knows no array. Two builds belong together if the contents of their sources, their tokenizer and
their settings are the same; where the sources lie does not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.data.corpus.shards import ShardRecord, as_count
from regard.errors import InputError
from regard.files.checksums import sha256_of
from regard.files.disk import atomic_write
from regard.files.folder_lock import describe_changes
from regard.files.json_files import json_bytes, read_checked_json, with_checksum
from regard.text import Tokenizer

__all__ = ["MANIFEST", "CorpusManifest", "SourceFile", "source_of", "tokenizer_digest", "tokenizer_files"]

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
