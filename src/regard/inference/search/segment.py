"""A segment of an index: the vectors, documents and postings of texts that were added at once. It never changes."""

from __future__ import annotations

from collections.abc import Generator
from functools import cached_property
from pathlib import Path

import numpy as np

from regard.errors import RegardError
from regard.events import Event, Note, Progress
from regard.files.checksums import FileState, file_states, find_damage
from regard.inference.search.approximate import APPROXIMATE, MIN_ROWS, ApproximateIndex, write_approximate
from regard.inference.search.bm25 import FILES, Postings, write_postings
from regard.inference.search.documents import DOCUMENTS, OFFSETS, Documents, DocumentTexts
from regard.inference.search.exact import Positions, Ranking, Vectors, search_exact

VECTORS = "vectors.npy"
REQUIRED = {VECTORS, DOCUMENTS, OFFSETS, *FILES}
EVERY = 2000  # texts between two events of progress

Files = dict[str, FileState]


class Segment:
    """The files of a folder, opened in constant time: sizes are compared, and content is read when it is needed."""

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
    if approximate and len(documents) >= MIN_ROWS:
        yield Note(message="building the approximate index")
        recall = write_approximate(folder, np.load(folder / VECTORS, mmap_mode="c"))
        yield Note(message=f"approximate index: recall@10 {recall:.3f} on a sample of the rows")
    elif approximate:
        yield Note(message=f"no approximate index: exact search is as fast for fewer than {MIN_ROWS:,} texts")
    names = [VECTORS, DOCUMENTS, OFFSETS, *FILES, APPROXIMATE]
    return file_states(folder, [name for name in names if (folder / name).is_file()])


def check_files(files: Files) -> Files:
    """Raise ValueError unless a record lists the files of a segment."""
    if not REQUIRED <= set(files) <= REQUIRED | {APPROXIMATE}:
        raise ValueError("the list of files of a segment is not valid")
    return files
