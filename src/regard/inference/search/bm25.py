"""BM25 (Robertson and Zaragoza, 2009): ranks texts by the words that they share with a query.

score(q, d) = sum over words w of q of  idf(w) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d| / mean |d|))
idf(w) = ln(1 + (N - df + 0.5) / (df + 0.5))

Postings are arrays on disk, memory-mapped: the rows that contain a word, and how often. Words are identified by a hash
of 64 bits, so that a word is found by bisection and no vocabulary is loaded.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from regard.inference.search.exact import Positions, Ranking
from regard.inference.search.inverted import Chunk, save_array, starts_of_terms, write_sorted

K1 = 1.2
B = 0.75
RANK_CONSTANT = 60  # of reciprocal rank fusion
WORDS, STARTS, ROWS, COUNTS, LENGTHS = (f"bm25_{name}.npy" for name in ("words", "starts", "rows", "counts", "lengths"))
FILES = (WORDS, STARTS, ROWS, COUNTS, LENGTHS)
CHUNK = 1 << 21  # postings in memory while they are written
# Letters and digits; Chinese and Japanese characters, which no spaces separate, count as words of their own.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_POSTING = np.dtype([("word", "<u8"), ("row", "<i4"), ("count", "<i4")])


def words_of(text: str) -> list[str]:
    """The words of a text, without case."""
    return [_fold(match) for match in _WORD.findall(text)]


def find_words(text: str, words: Iterable[str]) -> list[tuple[int, int]]:
    """Where a text has one of these words: character offsets [start, end)."""
    wanted = set(words)
    return [match.span() for match in _WORD.finditer(text) if _fold(match.group()) in wanted]


def _fold(word: str) -> str:
    return word.lower() if word.isascii() else unicodedata.normalize("NFKC", word).casefold()


def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def write_postings(folder: Path, texts: Iterable[str]) -> Iterator[int]:
    """Write the postings of texts; yields the number of texts after each. Memory grows with the number of different
    words only: postings are first written in the order of the texts, then sorted by word."""
    lengths: list[int] = []
    hashes: dict[str, int] = {}
    with TemporaryFile(dir=folder) as spool:
        pending: list[tuple[int, int, int]] = []
        frequencies: Counter[int] = Counter()
        for row, text in enumerate(texts):
            words = words_of(text)
            lengths.append(len(words))
            for word, count in Counter(words).items():
                if (hashed := hashes.get(word)) is None:
                    hashed = hashes[word] = _hash(word)
                frequencies[hashed] += 1
                pending.append((hashed, row, count))
            if len(pending) >= CHUNK:
                np.array(pending, dtype=_POSTING).tofile(spool)
                pending = []
            yield row + 1
        np.array(pending, dtype=_POSTING).tofile(spool)
        _write_sorted(folder, spool.fileno(), frequencies)
    save_array(folder / LENGTHS, np.array(lengths, dtype=np.int32))


def _write_sorted(folder: Path, spool: int, frequencies: Counter[int]) -> None:
    words = np.array(sorted(frequencies), dtype=np.uint64)
    starts = starts_of_terms([frequencies[int(word)] for word in words])

    def chunks() -> Iterator[Chunk]:
        with open(spool, "rb", closefd=False) as file:
            file.seek(0)
            while len(chunk := np.frombuffer(file.read(CHUNK * _POSTING.itemsize), dtype=_POSTING)):
                yield np.searchsorted(words, chunk["word"]), chunk["row"], chunk["count"]

    save_array(folder / WORDS, words)
    save_array(folder / STARTS, starts)
    write_sorted(folder / ROWS, folder / COUNTS, starts, np.int32, chunks())


class Postings:
    """The postings of a segment."""

    def __init__(self, folder: Path) -> None:
        self._words, self._starts, self._rows, self._counts, self.lengths = (
            np.load(folder / name, mmap_mode="r") for name in FILES
        )

    def rows_with(self, word: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The rows that have a word, and how often each does."""
        hashed = np.uint64(_hash(word))
        place = int(np.searchsorted(self._words, hashed))
        if place == len(self._words) or self._words[place] != hashed:
            return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)
        part = slice(int(self._starts[place]), int(self._starts[place + 1]))
        return self._rows[part], self._counts[part]


def search_bm25(query: str, parts: Sequence[Postings], top: int, *, deleted: Positions | None = None) -> Ranking:
    """The `top` rows with the highest BM25 scores; rows without a word of the query are not among them.

    The rows of each part follow those of the part before. Deleted rows are left out, and count in the frequencies of
    words until they are removed from the parts.
    """
    scores = np.zeros(sum(len(part.lengths) for part in parts), dtype=np.float64)
    for _, rows, values in bm25_contributions(query, parts):
        scores[rows] += values
    if deleted is not None:
        scores[deleted] = 0
    positions = np.flatnonzero(scores)
    if len(positions) > top:
        threshold = np.partition(scores[positions], -top)[-top]
        positions = positions[scores[positions] >= threshold]
    return Ranking.best(positions, scores[positions], top)


def bm25_contributions(query: str, parts: Sequence[Postings]) -> Iterator[tuple[str, Positions, NDArray[np.float64]]]:
    """For each different word of a query the rows that have it, in order, and what it adds to their scores."""
    bases = np.concatenate([[0], np.cumsum([len(part.lengths) for part in parts])]).astype(np.int64)
    total = int(bases[-1])
    mean_length = sum(int(part.lengths.sum(dtype=np.int64)) for part in parts) / max(total, 1)
    for word, repeated in Counter(words_of(query)).items():
        found = [part.rows_with(word) for part in parts]
        frequency = sum(len(rows) for rows, _ in found)
        idf = np.log(1 + (total - frequency + 0.5) / (frequency + 0.5))
        positions, contributions = [], []
        for part, base, (rows, counts) in zip(parts, bases, found, strict=False):
            norm = K1 * (1 - B + B * part.lengths[rows] / mean_length)
            positions.append(base + rows)
            contributions.append(repeated * idf * counts * (K1 + 1) / (counts + norm))
        yield word, np.concatenate(positions), np.concatenate(contributions)


def fuse_ranks(rankings: Sequence[Ranking], top: int, *, constant: int = RANK_CONSTANT) -> Ranking:
    """Reciprocal rank fusion (Cormack et al., 2009): the sum of 1 / (constant + rank) over the rankings."""
    fused: Counter[int] = Counter()
    for ranking in rankings:
        for rank, position in enumerate(ranking.positions, 1):
            fused[int(position)] += 1 / (constant + rank)  # type: ignore[assignment]
    positions = np.array(list(fused), dtype=np.int64)
    return Ranking.best(positions, np.array(list(fused.values()), dtype=np.float64), top)
