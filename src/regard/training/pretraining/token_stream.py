"""A stretch of a corpus as one line of tokens, with the places where sentences and documents begin.

Knows the corpus' arrays and where to cut off a part for evaluation. Knows no objective and no tensor. Positions count
tokens through the whole stretch; the tokens themselves stay in the memory-mapped shards.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regard.data.corpus import Corpus
from regard.data.corpus.shards import Ids
from regard.errors import InputError

__all__ = ["HELD_OUT", "Positions", "TokenStream"]

Positions = NDArray[np.int64]
HELD_OUT = 0.01  # the share of a corpus that is kept for evaluation where no other text is given


@dataclass(frozen=True, eq=False)
class TokenStream:
    """`pieces` are the tokens shard by shard; a document lies in one piece. The arrays end with the count of tokens."""

    pieces: tuple[Ids, ...]
    starts: Positions  # of the pieces
    sentences: Positions
    documents: Positions

    @classmethod
    def of(cls, *corpora: Corpus) -> TokenStream:
        """Corpora of one tokenizer, one behind the other."""
        pieces, sentences, documents = [], [], []
        start = 0
        for shard in (corpus.shard(number) for corpus in corpora for number in range(corpus.shards)):
            pieces.append(np.asarray(shard.tokens))  # a plain array is cut ten times as fast as a mapped one
            sentences.append(shard.sentences[:-1] + start)
            documents.append(shard.sentences[shard.documents[:-1]] + start)
            start += len(shard.tokens)
        last = np.array([start])
        return cls(tuple(pieces), _ends(pieces), np.concatenate([*sentences, last]), np.concatenate([*documents, last]))

    @property
    def tokens(self) -> int:
        return int(self.starts[-1])

    def split(self, share: float = HELD_OUT) -> tuple[TokenStream, TokenStream]:
        """The most of it, and about `share` of its tokens from the end: whole documents, two at least, for pairs.

        Where the last documents are so long that too little would be left, the cut is made between sentences.
        """
        if self.tokens < 2:
            raise InputError(
                f"the text has {self.tokens} tokens, too few to keep a part for evaluation: use more text, "
                "or another text to evaluate on"
            )
        wanted = min(int(self.tokens * (1 - share)), self.tokens - 1)
        at = wanted
        for places, least in ((self.documents[1:-1], 2), (self.sentences[1:-1], 1)):
            before = max(min(int(np.searchsorted(places, wanted, side="right")) - 1, len(places) - least), 0)
            if len(places) and 2 * places[before] >= wanted:
                at = int(places[before])
                break
        return self._between(0, at), self._between(at, self.tokens)

    def ended(self, end: int) -> TokenStream:
        """The same text, in memory, with the token `end` behind each document."""
        stops = self.documents[1:]
        bounds = np.searchsorted(stops, self.starts, side="right")
        pieces = [
            np.insert(piece, stops[bounds[number] : bounds[number + 1]] - self.starts[number], end)
            for number, piece in enumerate(self.pieces)
        ]
        before = np.searchsorted(stops, self.sentences, side="right")
        documents = self.documents + np.arange(len(self.documents))
        return TokenStream(tuple(pieces), _ends(pieces), self.sentences + before, documents)

    def read(self, start: int, stop: int) -> Ids:
        """The tokens of a stretch that lies in one piece."""
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

        def inside(places: Positions) -> Positions:
            inner = places[(places > first) & (places < stop)] - first
            return np.concatenate([[0], inner, [stop - first]])

        return TokenStream(tuple(pieces), _ends(pieces), inside(self.sentences), inside(self.documents))


def _ends(pieces: Sequence[Ids]) -> Positions:
    """Where pieces begin that lie one behind the other, and where the last one ends."""
    return np.cumsum([0, *map(len, pieces)])
