"""A corpus as one stream of tokens.

Positions count tokens through the whole stream; the tokens stay in the memory-mapped shards, or on an object store. In
memory are 8 bytes per document and, once sentences are asked for (sentence pairs), 8 bytes per sentence.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.corpus import Corpus
from regard.data.corpus.folder import Ids
from regard.data.corpus.shard_cache import CachedTokens, ShardCache
from regard.errors import InputError

Positions = NDArray[np.int64]
HELD_OUT = 0.01  # the share of a corpus that is held out if no other text is given


class EndTokens:
    """The tokens of a piece with the token `end` at the positions `ends`; slices of it are made when they are read."""

    def __init__(self, piece: Piece, ends: Positions, end: int) -> None:
        self.piece, self.ends, self.end = piece, ends, end
        self.dtype: np.dtype[Any] = piece.dtype

    def __len__(self) -> int:
        return len(self.piece) + len(self.ends)

    def __getitem__(self, key: slice) -> Ids:
        start, stop, _ = key.indices(len(self))
        before, last = np.searchsorted(self.ends, [start, stop]).tolist()
        tokens = self.piece[start - before : stop - last]
        if before == last:
            return tokens
        at = self.ends[before:last] - start - np.arange(last - before)
        return np.insert(tokens, at, self.end)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Ids:
        return np.asarray(self[:], dtype=dtype)


Piece = Ids | CachedTokens | EndTokens


class TokenStream:
    """`pieces` are the tokens of each shard; a document lies in one piece. The arrays end with the number of tokens.

    `starts` are those of the pieces. `sentences` may be a function that loads them when they are needed.
    """

    def __init__(
        self,
        pieces: tuple[Piece, ...],
        starts: Positions,
        sentences: Positions | Callable[[], Positions],
        documents: Positions,
    ) -> None:
        self.pieces, self.starts, self.documents = pieces, starts, documents
        self._load_sentences = sentences if callable(sentences) else lambda: sentences

    @classmethod
    def concatenate(cls, *corpora: Corpus) -> TokenStream:
        """Concatenated corpora of one tokenizer."""
        shards = [(corpus, number) for corpus in corpora for number in range(corpus.shards)]
        pieces = tuple(corpus.tokens_of(number) for corpus, number in shards)
        starts = _boundaries(pieces)
        documents = []
        for start, (corpus, number) in zip(starts, shards, strict=False):
            sentences, first = corpus.offsets_of(number)
            documents.append(sentences[first[:-1]] + start)

        def load_sentences() -> Positions:
            offsets = (corpus.offsets_of(number)[0][:-1] for corpus, number in shards)
            parts = [offset + start for start, offset in zip(starts, offsets, strict=False)]
            return np.concatenate([*parts, starts[-1:]])

        return cls(pieces, starts, load_sentences, np.concatenate([*documents, starts[-1:]]))

    @cached_property
    def sentences(self) -> Positions:
        return self._load_sentences()

    @property
    def tokens(self) -> int:
        return int(self.starts[-1])

    def split(self, share: float = HELD_OUT) -> tuple[TokenStream, TokenStream]:
        """A training part, and about `share` of the tokens from the end: whole documents, at least two, for pairs.

        If the last documents are so long that too little would be left, the split is between sentences.
        """
        if self.tokens < 2:
            raise InputError(
                f"the text has {self.tokens} tokens, too few to hold out a part for evaluation: use more text, "
                "or another text to evaluate on"
            )
        wanted = min(int(self.tokens * (1 - share)), self.tokens - 1)
        at = wanted
        for name, least in (("documents", 2), ("sentences", 1)):
            positions = getattr(self, name)[1:-1]
            before = max(min(int(np.searchsorted(positions, wanted, side="right")) - 1, len(positions) - least), 0)
            if len(positions) and 2 * positions[before] >= wanted:
                at = int(positions[before])
                break
        return self._between(0, at), self._between(at, self.tokens)

    def with_end_tokens(self, end: int) -> TokenStream:
        """The same text with the token `end` after each document, which is added when rows are read."""
        stops = self.documents[1:]
        bounds = np.searchsorted(stops, self.starts, side="right")
        pieces: list[Piece] = []
        for number, piece in enumerate(self.pieces):
            ends = stops[bounds[number] : bounds[number + 1]] - self.starts[number]
            pieces.append(EndTokens(piece, ends + np.arange(len(ends)), end))

        def load_sentences() -> Positions:
            sentences = self._load_sentences()
            return sentences + np.searchsorted(stops, sentences, side="right")

        documents = self.documents + np.arange(len(self.documents))
        return TokenStream(tuple(pieces), _boundaries(pieces), load_sentences, documents)

    def read(self, start: int, stop: int) -> Ids:
        """The tokens of a range that lies in one piece."""
        piece = bisect_right(self._bounds, start) - 1
        offset = self._bounds[piece]
        return self.pieces[piece][start - offset : stop - offset]

    @cached_property
    def _bounds(self) -> list[int]:
        return [int(start) for start in self.starts]

    def prefetch(self, pieces: Iterable[int]) -> None:
        """Fetch pieces in the background, in this order, if they are on an object store."""
        wanted: dict[ShardCache, list[str]] = {}
        for piece in map(self._stored, pieces):
            if piece is not None:
                wanted.setdefault(piece.cache, []).append(piece.name)
        for cache, names in wanted.items():
            cache.prefetch(names)

    def check_cache(self, shuffle_shards: int) -> None:
        """Raise InputError if the shards that are read in turns do not fit into the cache of an object store."""
        stored = [piece for number in range(len(self.pieces)) if (piece := self._stored(number)) is not None]
        for cache in dict.fromkeys(piece.cache for piece in stored):
            sizes = sorted(
                (len(piece) * piece.dtype.itemsize for piece in stored if piece.cache is cache), reverse=True
            )
            needed = sum(sizes[: 2 * shuffle_shards] if shuffle_shards else sizes)
            if needed > cache.limit:
                most = max(cache.limit // (2 * sizes[0]), 1)
                advice = f"set data.shuffle_shards={most}" if cache.limit >= 2 * sizes[0] else "build smaller shards"
                raise InputError(
                    f"the rows of {f'2 times {shuffle_shards}' if shuffle_shards else 'all'} shards of {cache.address} "
                    f"are read in random order, {needed:,} bytes, and the cache holds {cache.limit:,}: use a larger "
                    f"--cache-size, or {advice}"
                )

    def _stored(self, number: int) -> CachedTokens | None:
        """A piece that is on an object store."""
        piece = self.pieces[number]
        piece = piece.piece if isinstance(piece, EndTokens) else piece
        return piece if isinstance(piece, CachedTokens) else None

    def _between(self, first: int, stop: int) -> TokenStream:
        parts = [
            _part(piece, max(first - offset, 0), max(stop - offset, 0))
            for piece, offset in zip(self.pieces, self._bounds[:-1], strict=True)
        ]
        pieces = [part for part in parts if len(part)]

        def inside(positions: Positions) -> Positions:
            inner = positions[(positions > first) & (positions < stop)] - first
            return np.concatenate([[0], inner, [stop - first]])

        def load_sentences() -> Positions:
            return inside(self._load_sentences())

        return TokenStream(tuple(pieces), _boundaries(pieces), load_sentences, inside(self.documents))


def _part(piece: Piece, start: int, stop: int) -> Piece:
    return piece.part(start, stop) if isinstance(piece, CachedTokens) else piece[start:stop]


def _boundaries(pieces: Sequence[Piece]) -> Positions:
    """The start of each of the concatenated pieces, and the end of the last one."""
    return np.cumsum([0, *map(len, pieces)])
