"""A stretch of a corpus as one line of tokens, with the places where sentences and documents begin.

Knows the corpus' arrays and where to cut off a part for evaluation. Knows no objective and no tensor. Places count
tokens through the whole stretch; the tokens themselves stay in the memory-mapped shards.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regard.corpus import Corpus
from regard.corpus.shards import Ids

__all__ = ["HELD_OUT", "Places", "Text"]

Places = NDArray[np.int64]
HELD_OUT = 0.01  # the share of a corpus that is kept for evaluation where no other text is given


@dataclass(frozen=True, eq=False)
class Text:
    """`pieces` are the tokens shard by shard; a document lies in one piece. The arrays end with the number of tokens."""

    pieces: tuple[Ids, ...]
    starts: Places  # of the pieces
    sentences: Places
    documents: Places

    @classmethod
    def of(cls, corpus: Corpus) -> Text:
        pieces, sentences, documents = [], [], []
        start = 0
        for number in range(corpus.shards):
            shard = corpus.shard(number)
            pieces.append(np.asarray(shard.tokens))  # a plain array is cut ten times as fast as a mapped one
            sentences.append(shard.sentences[:-1] + start)
            documents.append(shard.sentences[shard.documents[:-1]] + start)
            start += len(shard.tokens)
        ends = np.cumsum([0, *map(len, pieces)])
        last = ends[-1:]
        return cls(tuple(pieces), ends, np.concatenate([*sentences, last]), np.concatenate([*documents, last]))

    @property
    def tokens(self) -> int:
        return int(self.starts[-1])

    def split(self, share: float = HELD_OUT) -> tuple[Text, Text]:
        """The most of it, and at least `share` of its tokens from the end: whole documents, or sentences of the only one."""
        places = self.documents if len(self.documents) > 2 else self.sentences
        inner = places[1:-1]
        wanted = min(int(self.tokens * (1 - share)), self.tokens - 1)
        at = int(inner[max(np.searchsorted(inner, wanted, side="right") - 1, 0)]) if len(inner) else wanted
        return self._between(0, at), self._between(at, self.tokens)

    def ended(self, end: int) -> Text:
        """The same text, in memory, with the token `end` behind each document."""
        stops = self.documents[1:]
        pieces = []
        for number, piece in enumerate(self.pieces):
            first, last = self.starts[number], self.starts[number + 1]
            pieces.append(np.insert(piece, stops[(stops > first) & (stops <= last)] - first, end))
        before = np.searchsorted(stops, self.sentences, side="right")
        documents = self.documents + np.arange(len(self.documents))
        return Text(tuple(pieces), np.cumsum([0, *map(len, pieces)]), self.sentences + before, documents)

    def read(self, start: int, stop: int) -> Ids:
        """The tokens of a stretch that lies in one piece."""
        piece = bisect_right(self._bounds, start) - 1
        offset = self._bounds[piece]
        return self.pieces[piece][start - offset : stop - offset]

    @cached_property
    def _bounds(self) -> list[int]:
        return [int(start) for start in self.starts]

    def _between(self, first: int, stop: int) -> Text:
        pieces = []
        for number, piece in enumerate(self.pieces):
            offset = int(self.starts[number])
            part = piece[max(first - offset, 0) : max(stop - offset, 0)]
            if len(part):
                pieces.append(part)

        def inside(places: Places) -> Places:
            found = places[(places >= first) & (places < stop)] - first
            found = found if len(found) and found[0] == 0 else np.concatenate([[0], found])
            return np.concatenate([found, [stop - first]])

        return Text(
            tuple(pieces), np.cumsum([0, *map(len, pieces)]), inside(self.sentences), inside(self.documents)
        )
