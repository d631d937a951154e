"""The folder of an index: immutable segments, a list of deleted rows, and manifest.json, which names those that count.

    manifest.json           model, segments with the checksums of their files, deleted rows
    segments/000001/        vectors.npy, documents.jsonl, offsets.npy, bm25_*.npy, approximate.faiss
    deleted-000003.npy      positions of deleted rows
    adding/                 texts that are being added; a killed run continues here

A change writes new files first and then replaces the manifest, so whoever opens the folder finds the old index or the
new one. Files that no manifest names are removed by the next change.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import InputError, RegardError
from regard.events import Event, Progress
from regard.files.checksums import find_damage, sha256_of
from regard.files.disk import atomic_write, replace_file
from regard.files.durable_folder import refuse_foreign_content
from regard.files.json_files import json_bytes, read_checked_json, with_checksum
from regard.inference.embedding.engine import LongTexts
from regard.inference.search.documents import IndexedText, write_documents
from regard.inference.search.exact import Positions, blocks
from regard.inference.search.segment import VECTORS, Files, Segment, finish_segment, read_files

MANIFEST = "manifest.json"
SEGMENTS = "segments"
ADDING = "adding"
KIND = "regard search index"
FORMAT = 1
MAX_DELETED = 0.25  # of all rows; more are removed by compaction
MAX_SEGMENTS = 32
_SEGMENT = re.compile(r"\d{6}")
_DELETED = re.compile(r"deleted-\d{6}\.npy")


@dataclass(frozen=True)
class ModelRecord:
    """The model that made the vectors, and the settings of embedding. `weights` is a hash of weights and tokenizer."""

    name: str
    weights: str
    layers: str
    pooling: str
    max_length: int | None
    long: LongTexts


@dataclass(frozen=True)
class SegmentRecord:
    name: str
    rows: int
    files: Files


@dataclass(frozen=True)
class IndexManifest:
    """What an index consists of. `version` grows with every change and names new files."""

    model: ModelRecord
    width: int
    segments: tuple[SegmentRecord, ...]
    keep: tuple[str, ...] = ()  # the columns that were asked for
    id_column: str | None = None
    approximate: bool = False
    next_row: int = 0  # rows are numbered on when texts are added
    deleted: tuple[str, int, int, str] | None = None  # name, rows, size, SHA-256
    version: int = 1

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)

    @property
    def num_deleted(self) -> int:
        return 0 if self.deleted is None else self.deleted[1]

    @classmethod
    def read(cls, folder: Path) -> IndexManifest:
        path = folder / MANIFEST
        if not path.is_file():
            what = "is not an index" if folder.is_dir() else "there is no such folder"
            raise InputError(f"{folder}: {what}; expected a folder that `regard index` wrote")
        value: Any = read_checked_json(path)
        if value.get("kind") != KIND:
            raise InputError(f"{path} is not that of an index; expected a folder that `regard index` wrote")
        if value.get("format") != FORMAT:
            raise InputError(
                f"{folder}: the index has format {value.get('format')}, and this version of Regard reads {FORMAT}; "
                "build it again"
            )
        try:
            segments = tuple(
                SegmentRecord(_checked(one["name"], _SEGMENT), int(one["rows"]), read_files(one["files"]))
                for one in value["segments"]
            )
            return cls(
                model=ModelRecord(**value["model"]),
                width=int(value["width"]),
                segments=segments,
                keep=tuple(map(str, value["keep"])),
                id_column=value["id_column"],
                approximate=bool(value["approximate"]),
                next_row=int(value["next_row"]),
                deleted=_read_deletion(value["deleted"]),
                version=int(value["version"]),
            )
        except (InputError, KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(f"{path} is damaged ({error}); build the index again") from None

    def write(self, folder: Path) -> None:
        """Commit: from now on this is the index."""
        atomic_write(folder / MANIFEST, json_bytes(with_checksum({"kind": KIND, "format": FORMAT, **asdict(self)})))


def _checked(name: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise InputError(f"unexpected file name {name!r}")
    return name


def _read_deletion(value: Any) -> tuple[str, int, int, str] | None:
    if value is None:
        return None
    name, rows, size, digest = value
    return _checked(name, _DELETED), int(rows), int(size), str(digest)


def is_index(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def refuse_other_content(folder: Path) -> None:
    """InputError for a folder that holds anything but an index, or one that was begun."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, expected a folder; choose another name")
    if not is_index(folder):
        refuse_foreign_content(folder, except_for=(SEGMENTS, ADDING))


def open_segments(folder: Path, manifest: IndexManifest) -> list[Segment]:
    return [Segment(folder / SEGMENTS / one.name, one.rows, manifest.width, one.files) for one in manifest.segments]


def read_deleted(folder: Path, manifest: IndexManifest) -> Positions:
    """The positions of deleted rows, in order."""
    if manifest.deleted is None:
        return np.empty(0, dtype=np.int64)
    name, rows, size, digest = manifest.deleted
    if damage := find_damage(folder, {name: (size, digest)}):
        raise RegardError(f"{folder / name} {damage[name]}; restore it from a copy, or build the index again")
    found: Positions = np.load(folder / name)
    if found.shape != (rows,) or found.dtype != np.int64:
        raise RegardError(f"{folder / name} is damaged: expected {rows:,} positions; build the index again")
    return found


def verify(folder: Path, manifest: IndexManifest) -> None:
    """Compare every file with its checksum; RegardError names the first that differs."""
    for one in manifest.segments:
        if damage := find_damage(folder / SEGMENTS / one.name, one.files, verify="always"):
            name, problem = next(iter(damage.items()))
            raise RegardError(f"{folder / SEGMENTS / one.name / name} {problem}; restore it, or build the index again")
    read_deleted(folder, manifest)


def write_deleted(folder: Path, manifest: IndexManifest, positions: Positions) -> IndexManifest:
    """Mark rows as deleted."""
    version = manifest.version + 1
    path = folder / f"deleted-{version:06d}.npy"
    with replace_file(path) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array(file, positions, allow_pickle=False)
    record = (path.name, len(positions), path.stat().st_size, sha256_of(path))
    changed = replace(manifest, deleted=record, version=version)
    changed.write(folder)
    return changed


def commit_added(folder: Path, manifest: IndexManifest, rows: int, files: Files) -> IndexManifest:
    """Make the finished folder `adding` the next segment; `manifest` has everything else that changes."""
    version = manifest.version + 1
    name = f"{version:06d}"
    (folder / SEGMENTS).mkdir(exist_ok=True)
    target = folder / SEGMENTS / name
    if target.exists():  # a killed run came this far
        shutil.rmtree(target)
    (folder / ADDING).rename(target)
    segments = (*manifest.segments, SegmentRecord(name, rows, files))
    changed = replace(manifest, segments=segments, version=version)
    changed.write(folder)
    return changed


def needs_compaction(manifest: IndexManifest) -> bool:
    return manifest.num_deleted > MAX_DELETED * manifest.rows or len(manifest.segments) > MAX_SEGMENTS


def compact(folder: Path, manifest: IndexManifest) -> Generator[Event, None, IndexManifest]:
    """Write the rows that are not deleted to one new segment."""
    segments, deleted = open_segments(folder, manifest), read_deleted(folder, manifest)
    remaining = np.ones(manifest.rows, dtype=bool)
    remaining[deleted] = False
    count = int(remaining.sum())
    adding = folder / ADDING
    if adding.exists():
        shutil.rmtree(adding)
    if not count:
        changed = replace(manifest, segments=(), deleted=None, version=manifest.version + 1)
        changed.write(folder)
        return changed
    adding.mkdir()

    def documents() -> Iterator[IndexedText]:
        base = 0
        for segment in segments:
            yield from (one for place, one in enumerate(segment.documents) if remaining[base + place])
            base += segment.rows

    for _ in write_documents(adding, documents()):
        pass
    with replace_file(adding / VECTORS) as temporary:
        vectors = np.lib.format.open_memmap(temporary, "w+", np.float32, (count, manifest.width))
        written = base = 0
        for segment in segments:
            for block in blocks(segment.rows):
                chosen = segment.vectors[block][remaining[base + block.start : base + block.stop]]
                vectors[written : written + len(chosen)] = chosen
                written += len(chosen)
                yield Progress(stage="compacting", done=written, total=count)
            base += segment.rows
        vectors.flush()
        del vectors
    files = yield from finish_segment(adding, approximate=manifest.approximate)
    return commit_added(folder, replace(manifest, segments=(), deleted=None), count, files)


def remove_unused(folder: Path, manifest: IndexManifest) -> None:
    """Delete segments and lists of deleted rows that the manifest does not name."""
    used = {one.name for one in manifest.segments}
    for path in (folder / SEGMENTS).glob("*") if (folder / SEGMENTS).is_dir() else ():
        if _SEGMENT.fullmatch(path.name) and path.name not in used:
            shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob("deleted-*.npy"):
        if _DELETED.fullmatch(path.name) and (manifest.deleted is None or path.name != manifest.deleted[0]):
            path.unlink(missing_ok=True)
