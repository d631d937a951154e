"""A corpus as one stream of tokens, with the positions where sentences and documents start.

Positions count tokens through the whole stream; the tokens stay in the memory-mapped shards.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regard.data.corpus import Corpus
from regard.data.corpus.folder import Ids
from regard.errors import InputError

Positions = NDArray[np.int64]
HELD_OUT = 0.01  # the share of a corpus that is held out if no other text is given


@dataclass(frozen=True, eq=False)
class TokenStream:
    """`pieces` are the tokens of each shard; a document lies in one piece. The arrays end with the number of tokens."""

    pieces: tuple[Ids, ...]
    starts: Positions  # of the pieces
    sentences: Positions
    documents: Positions

    @classmethod
    def concatenate(cls, *corpora: Corpus) -> TokenStream:
        """Concatenated corpora of one tokenizer."""
        pieces, sentences, documents = [], [], []
        start = 0
        for shard in (corpus.shard(number) for corpus in corpora for number in range(corpus.shards)):
            pieces.append(np.asarray(shard.tokens))  # a plain array is sliced ten times as fast as a mapped one
            sentences.append(shard.sentences[:-1] + start)
            documents.append(shard.sentences[shard.documents[:-1]] + start)
            start += len(shard.tokens)
        last = np.array([start])
        return cls(
            tuple(pieces), _boundaries(pieces), np.concatenate([*sentences, last]), np.concatenate([*documents, last])
        )

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
        for positions, least in ((self.documents[1:-1], 2), (self.sentences[1:-1], 1)):
            before = max(min(int(np.searchsorted(positions, wanted, side="right")) - 1, len(positions) - least), 0)
            if len(positions) and 2 * positions[before] >= wanted:
                at = int(positions[before])
                break
        return self._between(0, at), self._between(at, self.tokens)

    def with_end_tokens(self, end: int) -> TokenStream:
        """The same text, in memory, with the token `end` after each document."""
        stops = self.documents[1:]
        bounds = np.searchsorted(stops, self.starts, side="right")
        pieces = [
            np.insert(piece, stops[bounds[number] : bounds[number + 1]] - self.starts[number], end)
            for number, piece in enumerate(self.pieces)
        ]
        before = np.searchsorted(stops, self.sentences, side="right")
        documents = self.documents + np.arange(len(self.documents))
        return TokenStream(tuple(pieces), _boundaries(pieces), self.sentences + before, documents)

    def read(self, start: int, stop: int) -> Ids:
        """The tokens of a range that lies in one piece."""
        piece = bisect_right(self._bounds, start) - 1
        offset = self._bounds[piece]
        return self.pieces[piece][start - offset : stop - offset]

    @cached_property
    def _bounds(self) -> list[int]:
        return [int(start) for start in self.starts]

    def _between(self, first: int, stop: int) -> TokenStream:
        parts = [
            piece[max(first - offset, 0) : max(stop - offset, 0)]
            for piece, offset in zip(self.pieces, self._bounds[:-1], strict=True)
        ]
        pieces = [part for part in parts if len(part)]

        def inside(positions: Positions) -> Positions:
            inner = positions[(positions > first) & (positions < stop)] - first
            return np.concatenate([[0], inner, [stop - first]])

        return TokenStream(tuple(pieces), _boundaries(pieces), inside(self.sentences), inside(self.documents))


def _boundaries(pieces: Sequence[Ids]) -> Positions:
    """The start of each of the concatenated pieces, and the end of the last one."""
    return np.cumsum([0, *map(len, pieces)])
