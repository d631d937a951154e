"""Approximate nearest neighbors by faiss: an inverted file (IVF), whose lists of vectors are memory-mapped.

Vectors are divided into cells by k-means, and a query reads the cells nearest to it. How many cells it takes for a
recall of 0.99 is measured when the index is built, on rows of the index itself. Needs the extra `search`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import InputError, RegardError
from regard.files.disk import replace_file
from regard.inference.search.exact import Positions, Ranking, Vectors, blocks, rescore, search_exact

APPROXIMATE = "approximate.faiss"
MIN_ROWS = 20_000  # fewer are read sooner than the cells are chosen
TARGET_RECALL = 0.99  # at 10, of rows as queries; other queries find a little less
TRAINING_ROWS = 40  # per cell
ITERATIONS = 6  # of k-means
SAMPLE = 256  # queries that choose the number of cells
SPARE = 10  # candidates beyond those that are wanted


def require_faiss() -> Any:
    try:
        import faiss  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise InputError(
            "approximate search needs faiss, which is not installed: pip install 'regard[search]', or leave "
            "--approximate out, which searches exactly"
        ) from None
    return faiss


def num_cells(rows: int) -> int:
    """The number of cells for so many rows, as faiss advises: a few times the square root."""
    return max(1, round(4 * math.sqrt(rows)))


def write_approximate(folder: Path, vectors: Vectors, *, seed: int = 0) -> float:
    """Write the approximate index of a segment; returns its recall@10 on a sample of the rows."""
    faiss = require_faiss()
    rows, width = vectors.shape
    cells = num_cells(rows)
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, cells, faiss.METRIC_INNER_PRODUCT)
    index.cp.seed, index.cp.niter = seed + 1, ITERATIONS
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.choice(rows, min(rows, cells * TRAINING_ROWS), replace=False))
    index.train(np.ascontiguousarray(vectors[chosen]))
    for block in blocks(rows):
        index.add(np.ascontiguousarray(vectors[block]))
    recall = _choose_probes(index, vectors, generator)
    with replace_file(folder / APPROXIMATE) as temporary:
        faiss.write_index(index, str(temporary))
    return recall


def _choose_probes(index: Any, vectors: Vectors, generator: np.random.Generator) -> float:
    """Set the number of cells that a query reads to the smallest power of two with the target recall."""
    queries = np.ascontiguousarray(vectors[np.sort(generator.choice(len(vectors), min(len(vectors), SAMPLE), False))])
    expected = [set(one.positions.tolist()) for one in search_exact(queries, vectors, 11)]  # with the row itself
    index.nprobe, recall = 1, 0.0
    while True:
        _, found = index.search(queries, 11)
        recalls = [len(want & set(got)) / len(want) for want, got in zip(expected, found.tolist(), strict=True)]
        recall = float(np.mean(recalls))
        if recall >= TARGET_RECALL or index.nprobe >= index.nlist:
            return recall
        index.nprobe = min(2 * index.nprobe, index.nlist)


class ApproximateIndex:
    """The approximate index of a segment. Its file is one that Regard wrote: the caller has checked its checksum."""

    def __init__(self, folder: Path) -> None:
        faiss = require_faiss()
        try:
            self._index = faiss.read_index(str(folder / APPROXIMATE), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        except RuntimeError as error:
            raise RegardError(f"{folder / APPROXIMATE} is damaged ({error}); build the index again") from None

    def search(
        self, queries: Vectors, vectors: Vectors, top: int, *, deleted: Positions | None = None
    ) -> list[Ranking]:
        """As `search_exact`, among the cells nearest to each query."""
        faiss = require_faiss()
        options = faiss.SearchParametersIVF(nprobe=self._index.nprobe)
        if deleted is not None and len(deleted):
            batch = faiss.IDSelectorBatch(deleted)
            options = faiss.SearchParametersIVF(nprobe=self._index.nprobe, sel=faiss.IDSelectorNot(batch))
        _, found = self._index.search(np.ascontiguousarray(queries), min(top + SPARE, len(vectors)), params=options)
        return [rescore(query, vectors, rows[rows >= 0], top) for query, rows in zip(queries, found, strict=True)]
