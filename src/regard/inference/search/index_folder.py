"""The folder of an index: immutable segments, a list of deleted rows, and a record, which names those that count.

    regard.json             model, segments with the checksums of their files, deleted rows
    segments/000001/        vectors.npy, documents.jsonl, offsets.npy, bm25_*.npy, approximate.faiss
    deleted-000003.npy      positions of deleted rows
    adding/                 texts that are being added; a killed run continues here

A change writes new files first and then replaces the record, so whoever opens the folder finds the old index or the new
one. Files that the record does not name are removed by the next change.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from regard.errors import InputError, RegardError
from regard.events import Event, Progress
from regard.files.checksums import file_states, find_damage
from regard.files.disk import replace_file
from regard.files.durable_folder import RECORD, DurableFolder, FolderRecord
from regard.inference.embedding.engine import LongTexts
from regard.inference.search.approximate import APPROXIMATE
from regard.inference.search.documents import IndexedText, write_documents
from regard.inference.search.exact import Positions, blocks
from regard.inference.search.segment import REQUIRED, VECTORS, Files, Segment, check_files, finish_segment

SEGMENTS = "segments"
ADDING = "adding"
KIND = "search index"
MAX_DELETED = 0.25  # of all rows; more are removed by compaction
MAX_SEGMENTS = 32
_SEGMENT = r"\d{6,}"
_DELETED = r"deleted-\d{6,}\.npy"


def durable_folder(folder: Path) -> DurableFolder:
    """Return an index as a durable folder; without an index there are texts that are being added."""
    return DurableFolder(folder, kind=KIND, part=ADDING, files=_entries())


def _entries() -> tuple[str, ...]:
    return (*(f"{SEGMENTS}/#/{name}" for name in (*sorted(REQUIRED), APPROXIMATE)), "deleted-#.npy")


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
    name: Annotated[str, Field(pattern=rf"^{_SEGMENT}$")]
    rows: int
    files: Annotated[Files, AfterValidator(check_files)]


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
    # name, rows, size, SHA-256
    deleted: tuple[Annotated[str, Field(pattern=rf"^{_DELETED}$")], int, int, str] | None = None
    version: int = 1

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)

    @property
    def num_deleted(self) -> int:
        return 0 if self.deleted is None else self.deleted[1]

    @classmethod
    def read(cls, folder: Path) -> IndexManifest:
        record = FolderRecord.read(folder, kind=KIND)
        if record is None or not record.finished:
            what = "is not an index" if folder.is_dir() else "there is no such folder"
            raise InputError(f"{folder}: {what}; expected a folder that `regard index` wrote")
        try:
            return TypeAdapter(cls).validate_python({**record.identity, **record.outcome})
        except ValidationError as error:
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise InputError(f"{folder / RECORD} is damaged ({reason}); build the index again") from None

    def write(self, folder: Path) -> None:
        """Commit: from now on this is the index."""
        values = asdict(self)
        identity = {name: values.pop(name) for name in ("model", "width", "keep", "id_column")}
        FolderRecord(KIND, (ADDING, *_entries()), finished=True, identity=identity, outcome=values).write(folder)


def is_index(folder: Path) -> bool:
    """Whether a folder holds a finished index."""
    record = FolderRecord.read(folder)
    return record is not None and record.kind == KIND and record.finished


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
    size, digest = file_states(folder, [path.name])[path.name]
    changed = replace(manifest, deleted=(path.name, len(positions), size, digest), version=version)
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
        if re.fullmatch(_SEGMENT, path.name) and path.name not in used:
            shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob("deleted-*.npy"):
        if re.fullmatch(_DELETED, path.name) and (manifest.deleted is None or path.name != manifest.deleted[0]):
            path.unlink(missing_ok=True)
