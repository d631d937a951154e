"""An endless, seeded sequence of rows of a text: chunks of it, or pairs of chunks.

An epoch lays a randomly shifted grid over the text and visits its cells in random order, so every token is read about
once per epoch. The random numbers of row k follow from k, so it is the same in whatever micro-batch it is read. In
memory are 8 bytes per row of the text, and about 40 while the order of an epoch is made.

By default the rows of all shards are mixed. With `shuffle_shards`, the shards of an epoch are mixed in groups of that
many, so that a corpus on an object store needs no more than two groups of shards on the disk at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError
from regard.training.recipes.pretraining.token_stream import Positions, TokenStream

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


class SourceTokens:
    """The tokens that other texts of pairs come from: ranges [low, high) of them, counted as one sequence."""

    def __init__(self, low: Positions, high: Positions) -> None:
        self._low, self._before = low, np.concatenate([[0], np.cumsum(high - low)])
        self._order = np.lexsort((high, low))  # by position in the text, empty ranges first
        self.count = int(self._before[-1])

    def number(self, index: Positions) -> Positions:
        """The numbers of the tokens with these indices."""
        part = np.searchsorted(self._before, index, side="right") - 1
        found: Positions = self._low[part] + index - self._before[part]
        return found

    def index(self, number: Positions) -> Positions:
        """The indices of tokens that are in the ranges."""
        part = self._order[np.searchsorted(self._low[self._order], number, side="right") - 1]
        found: Positions = self._before[part] + number - self._low[part]
        return found


@dataclass(frozen=True)
class EpochOrder:
    """The anchors of the rows of an epoch in their order, and the groups of pieces that follow each other in it.

    Rows `bounds[g]` to `bounds[g + 1]` are in the pieces `groups[g]`.
    """

    number: int
    anchors: Positions
    groups: tuple[Positions, ...]
    bounds: Positions


class RowSampler(ABC):
    """A sequence of rows. A subclass defines the rows; `full` says whether all have `tokens` tokens.

    The rows of `shuffle_shards` pieces are mixed at a time, or those of all pieces if it is 0.
    """

    full: bool

    def __init__(self, text: TokenStream, *, tokens: int, seed: int, least: int = 0, shuffle_shards: int = 0) -> None:
        self.text, self.tokens, self.seed, self.shuffle_shards = text, tokens, seed, shuffle_shards
        fit = np.diff(text.starts) // tokens
        # One row fewer than fits leaves the grid room to shift.
        self._cells = np.maximum(fit - (fit > 1), least)
        self.epoch = int(self._cells.sum())
        self._order: EpochOrder | None = None
        self._group = (-1, -1)  # epoch and number of the group whose pieces were asked for

    @abstractmethod
    def spans(self, first: int, count: int) -> RowSpans:
        """Rows `first` to `first + count` of the endless sequence."""

    def _runs(self, first: int, count: int) -> Iterator[tuple[Positions, Positions]]:
        """The anchors of rows, at or near which they start, in runs of one group, each with the pieces of the group."""
        while count:
            epoch, at = divmod(first, self.epoch)
            order = self._epoch(epoch)
            group = int(np.searchsorted(order.bounds, at, side="right")) - 1
            if self._group != (epoch, group):
                self._group = epoch, group
                following = order.groups[group + 1] if group + 1 < len(order.groups) else order.groups[group][:0]
                self.text.prefetch([*order.groups[group].tolist(), *following.tolist()])
            anchors = order.anchors[at : min(at + count, int(order.bounds[group + 1]))]
            yield anchors, order.groups[group]
            first, count = first + len(anchors), count - len(anchors)

    def _epoch(self, number: int) -> EpochOrder:
        if self._order is None or self._order.number != number:
            random = self._random(number)
            sizes = np.diff(self.text.starts)
            # The grid shifts by at most its slack; the single cell of a small piece lies anywhere in it.
            room = np.where(sizes < self.tokens, sizes, sizes - self._cells * self.tokens + 1)
            shift = self.text.starts[:-1] + random.integers(room)
            cells = np.arange(self.epoch) - np.repeat(np.cumsum(self._cells) - self._cells, self._cells)
            anchors = np.repeat(shift, self._cells) + cells * self.tokens
            order = random.permutation(self.epoch)
            pieces = np.arange(len(self._cells))
            groups: tuple[Positions, ...] = (pieces,)
            if self.shuffle_shards:
                rank = random.permutation(len(pieces))
                # A stable sort keeps the random order within each group.
                group = np.repeat(rank // self.shuffle_shards, self._cells)
                order = order[np.argsort(group[order], kind="stable")]
                pieces = np.argsort(rank)
                groups = tuple(
                    pieces[start : start + self.shuffle_shards] for start in range(0, len(pieces), self.shuffle_shards)
                )
            bounds = np.cumsum([0, *(int(self._cells[group].sum()) for group in groups)])
            self._order = EpochOrder(number, anchors[order], groups, bounds)
        return self._order

    def _random(self, stream: int, at: int = 0) -> np.random.Generator:
        """Random numbers of a stream that follows from the seed, starting at counter `at`."""
        # From a list, numpy makes floats if a number is above 2**63, and digits of the seed are lost.
        key = np.array([self.seed, stream], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=at))


class TextChunks(RowSampler):
    """A row is `tokens` tokens of running text, across documents."""

    full = True

    def __init__(self, text: TokenStream, *, tokens: int, seed: int, shuffle_shards: int = 0) -> None:
        super().__init__(text, tokens=tokens, seed=seed, shuffle_shards=shuffle_shards)
        if not self.epoch:
            raise InputError(
                f"the text has {text.tokens} tokens, too few for one row of {tokens}: use more text, "
                "or a smaller data.max_length"
            )

    def spans(self, first: int, count: int) -> RowSpans:
        starts = np.concatenate([anchors for anchors, _ in self._runs(first, count)])
        nothing = np.zeros((count, 2), dtype=np.int64)
        return RowSpans(np.stack([starts, starts + self.tokens], axis=1), nothing, np.full(count, FOLLOWS))


class SentencePairs(RowSampler):
    """A row is two texts, split at a sentence boundary, of `tokens` tokens together.

    With `kind` next, half of the Bs follow their A in its document and half come from another document. With order, B
    always follows A, but half of the pairs are swapped. A share `short` of the rows has one sentence per side. Without
    short rows all rows are full; documents too short to fill one then give only an A, or nothing with order.
    """

    def __init__(
        self,
        text: TokenStream,
        *,
        tokens: int,
        seed: int,
        kind: Literal["next", "order"] = "next",
        short: float = 0.0,
        shuffle_shards: int = 0,
    ) -> None:
        super().__init__(text, tokens=tokens, seed=seed, least=1, shuffle_shards=shuffle_shards)
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
        # The same number of documents, and the first document of each piece.
        self._documents_before: Positions = np.concatenate([[0], np.cumsum(sources & (sizes > 0))])
        self._piece_documents: Positions = np.searchsorted(text.documents, text.starts)
        # Pairs from documents that give A alone are all false: fewer of the others are.
        given = too_short if kind == "next" else 0.0
        self._false = max(0.5 - given, 0.0) / max(1 - given, 0.5)

    def spans(self, first: int, count: int) -> RowSpans:
        parts = []
        for anchors, pieces in self._runs(first, count):
            parts.append(self._pairs(first, anchors.copy(), self._sources(pieces)))
            first += len(anchors)
        one, two, labels = ([getattr(part, name) for part in parts] for name in ("first", "second", "labels"))
        return RowSpans(np.concatenate(one), np.concatenate(two), np.concatenate(labels))

    def _pairs(self, first: int, anchors: Positions, sources: SourceTokens) -> RowSpans:
        """The rows from `first` on with these anchors; other texts come from the sources."""
        random = self._random(ROWS, first).random((len(anchors), DRAWS))
        document = self._document(anchors)
        long_enough = self._long_enough[document]
        if self.kind == "order":
            chosen = sources.number(_scaled(random[~long_enough, 3], sources.count))
            anchors[~long_enough] = self._source(chosen)
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
            two[false] = self._elsewhere(document[false], room[false], short[false], random[false, 3], sources)
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
        self,
        document: Positions,
        room: Positions,
        short: NDArray[np.bool_],
        random: RandomNumbers,
        sources: SourceTokens,
    ) -> Positions:
        """The B of false pairs: a range of another document of the sources, all positions equally likely."""
        own = self._before[document + 1] - self._before[document]
        at = _scaled(random, sources.count - own)
        positions = self._source(sources.number(at + own * (at >= sources.index(self._before[document]))))
        number = np.searchsorted(self.text.sentences, positions, side="right") - 1
        start, stop = self._range(positions, self._document(positions), room)
        start = np.where(short, self.text.sentences[number], start)
        return np.stack([start, np.where(short, self.text.sentences[number + 1], stop)], axis=1)

    def _sources(self, pieces: Positions) -> SourceTokens:
        """The source tokens of these pieces, or those of all pieces if these have not enough documents for pairs."""
        bounds = self._before[self._piece_documents]
        if len(pieces) < len(bounds) - 1:
            counts = np.diff(self._documents_before[self._piece_documents])[pieces]
            if counts.sum() >= (2 if self.kind == "next" else 1):
                return SourceTokens(bounds[pieces], bounds[pieces + 1])
        return SourceTokens(bounds[:-1], bounds[1:])

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


def _scaled(random: RandomNumbers, count: Positions | int) -> Positions:
    """Indices below `count` from random numbers in [0, 1)."""
    found: Positions = (random * count).astype(np.int64)
    return found
