"""A corpus as one stream of tokens, and an endless, seeded sequence of rows of it: chunks of text, or pairs of chunks.

Positions count tokens through the whole stream; the tokens stay in the memory-mapped shards.
An epoch lays a randomly shifted grid over the text and visits its cells in random order, so every token is read about
once per epoch. The random numbers of row k follow from k, so it is the same in whatever micro-batch it is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

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


FOLLOWS, OTHER = 0, 1  # the labels of a pair, as BERT numbers them
DRAWS = 4  # random numbers per row: as many as the generator makes per counter value
ROWS = 1 << 63  # the random stream for rows; epochs use the streams from 0 on
SHORT_DOCUMENTS = 0.25  # the share of text in documents too short for a row, above which full rows are refused
RandomNumbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RowSpans:
    """Ranges [start, stop) of the first text of each row, of the second (empty if there is none), and labels."""

    first: Positions  # (rows, 2)
    second: Positions  # (rows, 2)
    labels: NDArray[np.int64]


class RowSampler:
    """A sequence of rows. A subclass defines the rows; `full` says whether all have `tokens` tokens."""

    full: bool

    def __init__(self, text: TokenStream, *, tokens: int, seed: int, least: int = 0) -> None:
        self.text, self.tokens, self.seed = text, tokens, seed
        fit = np.diff(text.starts) // tokens
        # One row fewer than fits leaves the grid room to shift.
        self._cells = np.maximum(fit - (fit > 1), least)
        self.epoch = int(self._cells.sum())
        self._order: tuple[int, Positions] | None = None

    def spans(self, first: int, count: int) -> RowSpans:
        """Rows `first` to `first + count` of the endless sequence."""
        raise NotImplementedError

    def _anchors(self, first: int, count: int) -> Positions:
        """The positions in the text at or near which rows start."""
        found: list[Positions] = []
        while count:
            epoch, at = divmod(first, self.epoch)
            part = self._epoch(epoch)[at : at + count]
            found.append(part)
            first, count = first + len(part), count - len(part)
        return np.concatenate(found)

    def _epoch(self, number: int) -> Positions:
        if self._order is None or self._order[0] != number:
            random = self._random(number)
            sizes = np.diff(self.text.starts)
            # The grid shifts by at most its slack; the single cell of a small piece lies anywhere in it.
            room = np.where(sizes < self.tokens, sizes, sizes - self._cells * self.tokens + 1)
            shift = self.text.starts[:-1] + random.integers(room)
            cells = np.arange(self.epoch) - np.repeat(np.cumsum(self._cells) - self._cells, self._cells)
            anchors = np.repeat(shift, self._cells) + cells * self.tokens
            self._order = number, anchors[random.permutation(self.epoch)]
        return self._order[1]

    def _random(self, stream: int, at: int = 0) -> np.random.Generator:
        """Random numbers of a stream that follows from the seed, starting at counter `at`."""
        # From a list, numpy makes floats if a number is above 2**63, and digits of the seed are lost.
        key = np.array([self.seed, stream], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=at))


class TextChunks(RowSampler):
    """A row is `tokens` tokens of running text, across documents."""

    full = True

    def __init__(self, text: TokenStream, *, tokens: int, seed: int) -> None:
        super().__init__(text, tokens=tokens, seed=seed)
        if not self.epoch:
            raise InputError(
                f"the text has {text.tokens} tokens, too few for one row of {tokens}: use more text, "
                "or a smaller data.max_length"
            )

    def spans(self, first: int, count: int) -> RowSpans:
        starts = self._anchors(first, count)
        nothing = np.zeros((count, 2), dtype=np.int64)
        return RowSpans(np.stack([starts, starts + self.tokens], axis=1), nothing, np.full(count, FOLLOWS))


class SentencePairs(RowSampler):
    """A row is two texts, split at a sentence boundary, of `tokens` tokens together.

    With `kind` next, half of the Bs follow their A in its document and half come from another document. With order, B
    always follows A, but half of the pairs are swapped. A share `short` of the rows has one sentence per side. Without
    short rows all rows are full; documents too short to fill one then give only an A, or nothing with order.
    """

    def __init__(
        self, text: TokenStream, *, tokens: int, seed: int, kind: Literal["next", "order"] = "next", short: float = 0.0
    ) -> None:
        super().__init__(text, tokens=tokens, seed=seed, least=1)
        self.kind, self.short, self.full = kind, short, not short
        sizes = np.diff(text.documents)
        if kind == "next" and len(sizes) < 2:
            raise InputError(
                "the text to train on is one document, so next-sentence pairs cannot be made: put a blank line between "
                "documents, or train without pairs (--set objective.sentence_pairs=none)"
            )
        whole = tokens if self.full else 2
        self._long_enough = sizes >= whole  # long enough for both sides of a pair
        too_short = sizes[~self._long_enough].sum() / text.tokens
        if self.full and too_short > SHORT_DOCUMENTS:
            raise InputError(
                f"{100 * too_short:.0f}% of the text is in documents of fewer than {tokens} tokens, which cannot "
                "fill a row: use a smaller data.max_length, or objective.short_seq_prob above 0"
            )
        # The documents that B of a false pair comes from, or a pair whose own document is too short.
        sources = self._long_enough if self.full or kind == "order" else np.full(len(sizes), True)
        if sources.sum() < (needed := 2 if kind == "next" else 1):
            raise InputError(
                f"the text has {sources.sum()} documents of at least {whole} tokens, and such pairs need {needed}: "
                "use more text, a smaller data.max_length, or objective.short_seq_prob above 0"
            )
        # The number of source tokens before each document.
        self._before: Positions = np.concatenate([[0], np.cumsum(sizes * sources)])
        # Pairs from documents that give A alone are all false: fewer of the others are.
        given = too_short if kind == "next" else 0.0
        self._false = max(0.5 - given, 0.0) / max(1 - given, 0.5)

    def spans(self, first: int, count: int) -> RowSpans:
        random = self._random(ROWS, first).random((count, DRAWS))
        anchors = self._anchors(first, count)
        document = self._document(anchors)
        long_enough = self._long_enough[document]
        if self.kind == "order":
            anchors[~long_enough] = self._source(_scaled(random[~long_enough, 3], self._before[-1]))
            document = self._document(anchors)
        short = random[:, 0] < self.short
        start, cut, stop = self._cut(anchors, document, random[:, 1])
        start[short], cut[short], stop[short] = self._sentences(anchors[short], document[short])
        labels = np.where(random[:, 2] < self._false, OTHER, FOLLOWS)
        one, two = np.stack([start, cut], axis=1), np.stack([cut, stop], axis=1)
        if self.kind == "next":
            labels[~long_enough] = OTHER
            false = labels == OTHER
            room = self.tokens - (cut - start)
            two[false] = self._elsewhere(document[false], room[false], short[false], random[false, 3])
        one, two = self._trimmed(one, two)
        if self.kind == "order":
            swapped = (labels == OTHER)[:, None]
            one, two = np.where(swapped, two, one), np.where(swapped, one, two)
        return RowSpans(one, two, labels)

    def _document(self, positions: Positions) -> Positions:
        """The index of the document of each position."""
        return np.searchsorted(self.text.documents, positions, side="right") - 1

    def _range(self, positions: Positions, document: Positions, room: Positions | int) -> tuple[Positions, Positions]:
        """`room` tokens of a document from the start of a position's sentence, or the last ones of the document.

        In a sentence longer than a row, the position itself is the start, so that all of it is read.
        """
        begin, end = self.text.documents[document], self.text.documents[document + 1]
        start = self.text.sentences[np.searchsorted(self.text.sentences, positions, side="right") - 1]
        start = np.where(positions - start < self.tokens, start, positions)
        start = np.maximum(np.minimum(start, end - room), begin)
        return start, np.minimum(start + room, end)

    def _cut(
        self, anchors: Positions, document: Positions, random: RandomNumbers
    ) -> tuple[Positions, Positions, Positions]:
        """Full rows: start, split and stop of a range, split between two sentences, or anywhere in the only one."""
        sentences = self.text.sentences
        start, stop = self._range(anchors, document, self.tokens)
        low, high = np.searchsorted(sentences, start, side="right"), np.searchsorted(sentences, stop, side="left")
        at_sentence = sentences[np.minimum(low + _scaled(random, high - low), len(sentences) - 1)]
        anywhere = start + 1 + _scaled(random, stop - start - 1)
        return start, np.where(high > low, at_sentence, anywhere), stop

    def _sentences(self, anchors: Positions, document: Positions) -> tuple[Positions, Positions, Positions]:
        """Short rows: a sentence and the next one, or the halves of the only one."""
        sentences = self.text.sentences
        first = np.searchsorted(sentences, self.text.documents[document])
        last = np.searchsorted(sentences, self.text.documents[document + 1]) - 1
        number = np.searchsorted(sentences, anchors, side="right") - 1
        number = np.maximum(np.minimum(number, last - 1), first)  # the last has no successor
        start, cut, stop = sentences[number], sentences[number + 1], sentences[np.minimum(number + 2, last + 1)]
        return start, np.where(first == last, (start + cut + 1) // 2, cut), stop

    def _elsewhere(
        self, document: Positions, room: Positions, short: NDArray[np.bool_], random: RandomNumbers
    ) -> Positions:
        """The B of false pairs: a range of another document, all positions equally likely."""
        before = self._before[document]
        own = self._before[document + 1] - before
        at = _scaled(random, self._before[-1] - own)
        positions = self._source(at + own * (at >= before))
        number = np.searchsorted(self.text.sentences, positions, side="right") - 1
        start, stop = self._range(positions, self._document(positions), room)
        start = np.where(short, self.text.sentences[number], start)
        return np.stack([start, np.where(short, self.text.sentences[number + 1], stop)], axis=1)

    def _source(self, numbers: Positions) -> Positions:
        """Positions in the text of tokens that are counted through the sources alone."""
        document = np.searchsorted(self._before, numbers, side="right") - 1
        return self.text.documents[document] + numbers - self._before[document]

    def _trimmed(self, first: Positions, second: Positions) -> tuple[Positions, Positions]:
        """Truncate rows to `tokens` tokens: A keeps its end, B its start."""
        size, other = first[:, 1] - first[:, 0], second[:, 1] - second[:, 0]
        kept = np.minimum(size, np.maximum(self.tokens // 2, self.tokens - other))
        first = np.stack([first[:, 1] - kept, first[:, 1]], axis=1)
        return first, np.stack([second[:, 0], second[:, 0] + np.minimum(other, self.tokens - kept)], axis=1)


def _scaled(random: RandomNumbers, count: Positions) -> Positions:
    """Indices below `count` from random numbers in [0, 1)."""
    found: Positions = (random * count).astype(np.int64)
    return found
