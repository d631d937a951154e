"""The folder of an index: immutable segments, a list of deleted rows, and a record, which names those that count.

    regard.json             model, segments with the checksums of their files, deleted rows
    segments/000001/        vectors.npy, documents.jsonl, offsets.npy, bm25_*.npy, splade_*.npy, approximate.faiss
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
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from regard.errors import InputError, RegardError
from regard.events import Event, Note, Progress
from regard.files.checksums import FileState, file_states, find_damage
from regard.files.disk import replace_file
from regard.files.durable_folder import RECORD, DurableFolder, FolderRecord
from regard.inference.embedding.engine import LongTexts
from regard.inference.search.approximate import APPROXIMATE, MIN_ROWS, ApproximateIndex, write_approximate
from regard.inference.search.bm25 import FILES, Postings, write_postings
from regard.inference.search.documents import (
    DOCUMENTS,
    OFFSETS,
    Documents,
    DocumentTexts,
    IndexedText,
    write_documents,
)
from regard.inference.search.exact import Positions, Ranking, Vectors, blocks, search_exact
from regard.inference.search.inverted import FILES as SPARSE_FILES
from regard.inference.search.inverted import SparsePostings, join_sparse, write_sparse

VECTORS = "vectors.npy"
REQUIRED = {VECTORS, DOCUMENTS, OFFSETS, *FILES}
OPTIONAL = (APPROXIMATE, *SPARSE_FILES)
SPARSE_VECTORS = "sparse.npz"  # in `adding`, until the postings are written
EVERY = 2000  # texts between two events of progress
Files = dict[str, FileState]
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
    return (*(f"{SEGMENTS}/#/{name}" for name in (*sorted(REQUIRED), *OPTIONAL)), "deleted-#.npy")


class Segment:
    """The vectors, documents and postings of texts that were added at once, which never change.

    The files are opened in constant time: sizes are compared, and content is read when it is needed."""

    def __init__(self, folder: Path, rows: int, width: int, files: Files) -> None:
        self.folder, self.rows, self.files = folder, rows, files
        if damage := find_damage(folder, files, verify="never"):
            name, problem = next(iter(damage.items()))
            raise RegardError(f"{folder / name} {problem}; restore it from a copy, or build the index again")
        try:
            # Copy on write: torch takes no arrays that cannot be written, and nothing here writes.
            self.vectors: Vectors = np.load(folder / VECTORS, mmap_mode="c")
            self.documents = Documents(folder)
        except (OSError, ValueError) as error:
            raise RegardError(f"{folder} is damaged ({error}); build the index again") from None
        if self.vectors.shape != (rows, width) or self.vectors.dtype != np.float32 or len(self.documents) != rows:
            raise RegardError(f"{folder} is damaged: expected {rows:,} rows of {width} float32; build the index again")

    @cached_property
    def postings(self) -> Postings:
        return Postings(self.folder)

    @cached_property
    def sparse_postings(self) -> SparsePostings:
        return SparsePostings(self.folder, self.rows)

    @property
    def is_approximate(self) -> bool:
        return APPROXIMATE in self.files

    @cached_property
    def _approximate(self) -> ApproximateIndex:
        # faiss trusts what it reads, so the content is compared with its checksum first (once: the result is cached).
        if damage := find_damage(self.folder, {APPROXIMATE: self.files[APPROXIMATE]}):
            raise RegardError(f"{self.folder / APPROXIMATE} {damage[APPROXIMATE]}; build the index again")
        return ApproximateIndex(self.folder)

    def search(
        self, queries: Vectors, top: int, *, deleted: Positions | None, approximate: bool = False
    ) -> list[Ranking]:
        """The nearest rows for each query."""
        if approximate and self.is_approximate:
            return self._approximate.search(queries, self.vectors, top, deleted=deleted)
        return search_exact(queries, self.vectors, top, deleted=deleted)


def finish_segment(folder: Path, *, approximate: bool) -> Generator[Event, None, Files]:
    """Write what is derived from the vectors and documents in a folder; returns size and checksum of every file."""
    documents = Documents(folder)
    for count in write_postings(folder, DocumentTexts(documents)):
        if count % EVERY == 0:
            yield Progress(stage="counting words", done=count, total=len(documents))
    yield Progress(stage="counting words", done=len(documents), total=len(documents))
    if (folder / SPARSE_VECTORS).is_file():
        yield Note(message="writing the inverted index of tokens")
        write_sparse(folder, folder / SPARSE_VECTORS)
    if approximate and len(documents) >= MIN_ROWS:
        yield Note(message="building the approximate index")
        recall = write_approximate(folder, np.load(folder / VECTORS, mmap_mode="c"))
        yield Note(message=f"approximate index: recall@10 {recall:.3f} on a sample of the rows")
    elif approximate:
        yield Note(message=f"no approximate index: exact search is as fast for fewer than {MIN_ROWS:,} texts")
    names = [VECTORS, DOCUMENTS, OFFSETS, *FILES, *OPTIONAL]
    return file_states(folder, [name for name in names if (folder / name).is_file()])


def check_files(files: Files) -> Files:
    """Raise ValueError unless a record lists the files of a segment."""
    names, sparse = set(files), set(SPARSE_FILES)
    if not REQUIRED <= names <= REQUIRED | set(OPTIONAL) or names & sparse not in (set(), sparse):
        raise ValueError("the list of files of a segment is not valid")
    return files


@dataclass(frozen=True)
class ModelRecord:
    """The model that made the vectors, and the settings of embedding.

    `weights` is a hash of weights and tokenizer, `modules` one of the modules of its sentence-transformers folder; it
    is empty if the vectors are those of the pooling alone. `prompt` was put before the texts, `query_prompt` is put
    before queries.
    """

    name: str
    weights: str
    layers: str
    pooling: str
    max_length: int | None
    long: LongTexts
    normalize: bool = True
    modules: str = ""
    prompt: str = ""
    query_prompt: str = ""

    def options(self, *, query: bool = False) -> dict[str, Any]:
        """The options of `load_engine` for texts, or for queries."""
        return {
            "layers": self.layers,
            "pooling": None if self.modules else self.pooling,
            "normalize": self.normalize or None,  # False would leave out a Normalize before truncate_dim
            "max_length": self.max_length,
            "long": self.long,
            "prompt": self.query_prompt if query else self.prompt,
        }


@dataclass(frozen=True)
class SparseRecord:
    """The model of the sparse vectors. `weights` is a hash of weights and tokenizer, `settings` of what its folder says
    of sparse vectors."""

    name: str
    weights: str
    settings: str
    max_length: int | None


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
    sparse: SparseRecord | None = None
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
        identity = {name: values.pop(name) for name in ("model", "width", "keep", "id_column", "sparse")}
        FolderRecord(KIND, (ADDING, *_entries()), finished=True, identity=identity, outcome=values).write(folder)


def is_index(folder: Path) -> bool:
    """Whether a folder holds a finished index."""
    record = FolderRecord.read(folder)
    return record is not None and record.kind == KIND and record.finished


def open_segments(folder: Path, manifest: IndexManifest) -> list[Segment]:
    for one in manifest.segments:
        if (manifest.sparse is not None) != (SPARSE_FILES[0] in one.files):
            raise RegardError(f"{folder / SEGMENTS / one.name} is damaged: its sparse vectors do not fit the index")
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
    if manifest.sparse is not None:
        join_sparse(adding, [one.sparse_postings for one in segments], remaining)
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
