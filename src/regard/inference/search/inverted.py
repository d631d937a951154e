"""An inverted index on disk: for each term the rows that have it, in order, with a value each.

BM25 counts words in it, and sparse vectors (SPLADE) have weights of tokens. Postings are sorted in chunks, so memory
does not grow with them, and are memory-mapped for a search: a query reads those of its own terms. A token that many
texts have also has a row of all their weights, which is added in a fraction of the time of its postings.

score(q, d) = sum over the tokens t of q of  q_t * d_t
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.files.disk import replace_file
from regard.inference.search.exact import Positions, Ranking

STARTS, ROWS, VALUES, FREQUENT = (f"splade_{name}.npy" for name in ("starts", "rows", "values", "frequent"))
FILES = (STARTS, ROWS, VALUES, FREQUENT)
FREQUENT_SHARE = 8  # a token in more than one of so many texts is frequent
CHUNK = 1 << 21  # postings in memory while they are written
ROUNDING = 1e-5  # of a score in float32, relative
Array = NDArray[Any]
Chunk = tuple[Array, Array, Array]  # terms, rows, values


class SparseRow(NamedTuple):
    """The tokens of a query with their weights."""

    indices: NDArray[np.int32]
    values: NDArray[np.float32]


def save_array(path: Path, values: Array) -> None:
    with replace_file(path) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array(file, values, allow_pickle=False)


def starts_of_terms(frequencies: Array | Sequence[int]) -> NDArray[np.int64]:
    """Where the postings of each term begin, and where the last ones end."""
    return np.concatenate([[0], np.cumsum(frequencies)]).astype(np.int64)


def write_sorted(
    rows_file: Path, values_file: Path, starts: NDArray[np.int64], kind: Any, chunks: Iterable[Chunk]
) -> None:
    """Write postings by term; those of a term stay in the order in which they come."""
    total = int(starts[-1])
    with replace_file(rows_file) as rows_path, replace_file(values_file) as values_path:
        rows = np.lib.format.open_memmap(rows_path, "w+", np.int32, (total,))
        values = np.lib.format.open_memmap(values_path, "w+", kind, (total,))
        following = starts[:-1].copy()  # where the next posting of each term goes
        for terms, some_rows, some_values in chunks:
            order = np.argsort(terms, kind="stable")
            terms = terms[order]
            first = np.searchsorted(terms, terms)  # where the term begins in the chunk
            targets = following[terms] + np.arange(len(terms)) - first
            rows[targets], values[targets] = some_rows[order], some_values[order]
            following += np.bincount(terms, minlength=len(following))
        rows.flush()
        values.flush()


def write_sparse(folder: Path, vectors: Path) -> None:
    """Write the postings of sparse vectors, which `regard embed --kind sparse` wrote to a .npz file."""
    with zipfile.ZipFile(vectors) as archive:
        width = int(_member(archive, "shape")[1])
        bounds = _member(archive, "indptr")

        def columns() -> Iterator[Array]:
            with archive.open("indices.npy") as file:
                yield from _parts(file)

        def chunks() -> Iterator[Chunk]:
            done = 0
            with archive.open("data.npy") as file:
                for terms, values in zip(columns(), _parts(file), strict=True):
                    positions = np.arange(done, done + len(terms))
                    yield terms, np.searchsorted(bounds, positions, side="right") - 1, values
                    done += len(terms)

        frequencies = sum((np.bincount(some, minlength=width) for some in columns()), np.zeros(width, dtype=np.int64))
        _write(folder, len(bounds) - 1, frequencies, chunks())


def _member(archive: zipfile.ZipFile, name: str) -> Array:
    with archive.open(f"{name}.npy") as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _parts(file: IO[bytes]) -> Iterator[Array]:
    """An array of one dimension in parts."""
    np.lib.format.read_magic(file)
    _, _, kind = np.lib.format.read_array_header_1_0(file)
    while data := file.read(CHUNK * kind.itemsize):
        yield np.frombuffer(data, dtype=kind)


def _write(folder: Path, num_rows: int, frequencies: Array, chunks: Iterable[Chunk]) -> None:
    starts = starts_of_terms(frequencies)
    write_sorted(folder / ROWS, folder / VALUES, starts, np.float32, chunks)
    save_array(folder / STARTS, starts)
    rows, values = (np.load(folder / name, mmap_mode="r") for name in (ROWS, VALUES))
    terms = _frequent(starts, num_rows)
    with replace_file(folder / FREQUENT) as temporary:
        weights = np.lib.format.open_memmap(temporary, "w+", np.float32, (len(terms), num_rows))
        for number, term in enumerate(terms):
            part = slice(starts[term], starts[term + 1])
            weights[number, rows[part]] = values[part]
        weights.flush()


def _frequent(starts: NDArray[np.int64], num_rows: int) -> Positions:
    return np.flatnonzero(np.diff(starts) * FREQUENT_SHARE > num_rows)


def join_sparse(folder: Path, parts: Sequence[SparsePostings], kept: NDArray[np.bool_]) -> None:
    """Write the postings of the rows that are kept, of several segments one after the other."""
    numbers = np.cumsum(kept) - 1  # of a row among those that are kept
    bases = np.cumsum([0, *(part.num_rows for part in parts)])

    def chunks() -> Iterator[Chunk]:
        for part, base in zip(parts, bases, strict=False):
            for first in range(0, len(part.rows), CHUNK):
                rows = part.rows[first : first + CHUNK] + base
                terms = np.searchsorted(part.starts, np.arange(first, first + len(rows)), side="right") - 1
                chosen = kept[rows]
                yield terms[chosen], numbers[rows[chosen]], part.values[first : first + CHUNK][chosen]

    width = max(len(part.starts) for part in parts) - 1
    frequencies = sum((np.bincount(terms, minlength=width) for terms, _, _ in chunks()), np.zeros(width, np.int64))
    _write(folder, int(kept.sum()), frequencies, chunks())


class SparsePostings:
    """The postings of a segment of `num_rows` texts."""

    def __init__(self, folder: Path, num_rows: int) -> None:
        self.starts, self.rows, self.values, self._weights = (np.load(folder / name, mmap_mode="r") for name in FILES)
        self.num_rows = num_rows
        self._frequent = {int(term): number for number, term in enumerate(_frequent(self.starts, num_rows))}

    def rows_with(self, term: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The rows that have a token, and its weight in each."""
        part = slice(int(self.starts[term]), int(self.starts[term + 1]))
        return self.rows[part], self.values[part]

    def add_scores(self, query: SparseRow, scores: NDArray[np.float32]) -> None:
        """Add the scores of all rows for a query."""
        product = np.empty_like(scores)
        for term, weight in zip(query.indices.tolist(), query.values, strict=True):
            if (number := self._frequent.get(term)) is not None:
                scores += np.multiply(self._weights[number], weight, out=product)
            else:
                rows, values = self.rows_with(term)
                np.add.at(scores, rows, weight * values)

    def weights_at(self, term: int, positions: Positions) -> NDArray[np.float32]:
        """The weight of a token in each row, 0 where it is not."""
        if (number := self._frequent.get(term)) is not None:
            return np.asarray(self._weights[number])[positions]
        rows, values = self.rows_with(term)
        found = np.zeros(len(positions), dtype=np.float32)
        positions, present = find_rows(rows, positions)
        found[present] = values[positions]
        return found


def search_sparse(
    query: SparseRow, parts: Sequence[SparsePostings], top: int, *, deleted: Positions | None = None
) -> Ranking:
    """The `top` rows with the highest scores above 0. The rows of each part follow those of the part before.

    Sums are in float32; the best are then computed again in float64, so that a score is the sum of `contributions`.
    """
    bases = np.cumsum([0, *(part.num_rows for part in parts)])
    scores = np.zeros(int(bases[-1]), dtype=np.float32)
    for part, base in zip(parts, bases.tolist(), strict=False):
        part.add_scores(query, scores[base : base + part.num_rows])
    if deleted is not None:
        scores[deleted] = 0
    positions = np.flatnonzero(scores > 0)
    if len(positions) > top:
        threshold = np.partition(scores, -top)[-top] * (1 - ROUNDING)
        positions = np.flatnonzero(scores >= threshold)
    return Ranking.best(positions, total_of(contributions(query, parts, positions)), top)


def contributions(query: SparseRow, parts: Sequence[SparsePostings], positions: Positions) -> NDArray[np.float64]:
    """What each token of a query adds to the score of each row, (rows, tokens)."""
    bases = np.cumsum([0, *(part.num_rows for part in parts)])
    found = np.zeros((len(positions), len(query.indices)))
    for part, base in zip(parts, bases.tolist(), strict=False):
        inside = np.flatnonzero((positions >= base) & (positions < base + part.num_rows))
        for column, (term, weight) in enumerate(zip(query.indices.tolist(), query.values.tolist(), strict=True)):
            found[inside, column] = weight * part.weights_at(term, positions[inside] - base).astype(np.float64)
    return found


def find_rows(rows: NDArray[np.int32], wanted: Positions) -> tuple[Positions, Positions]:
    """Where rows in order have wanted ones, and which of the wanted ones they have."""
    positions = np.searchsorted(rows, wanted.astype(rows.dtype))  # or numpy would convert all rows
    present = np.flatnonzero(positions < len(rows))
    present = present[rows[positions[present]] == wanted[present]]
    return positions[present], present


def total_of(contributions: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of each row, from left to right, as whoever adds the contributions gets it."""
    total = np.zeros(len(contributions))
    for column in contributions.T:
        total += column
    return total
