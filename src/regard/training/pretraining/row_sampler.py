"""What the model reads next: an endless, seeded order of rows over a text, each a stretch of it or a pair of stretches.

Knows where sentences and documents begin; knows no token and no mask. An epoch lays a grid over the text, shifted by
chance, and takes its cells in a new order, so every token is read about once an epoch. Row k is the same whoever
asks for it, in whatever portions: its random numbers come from its number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError
from regard.training.pretraining.token_stream import Positions, TokenStream

__all__ = ["FOLLOWS", "OTHER", "RowSampler", "RowSpans", "SentencePairs", "TextChunks"]

FOLLOWS, OTHER = 0, 1  # the labels of a pair, as BERT numbers them
DRAWS = 4  # random numbers of a row: as many as the generator makes of one number it counts
ROWS = 1 << 63  # the stream of random numbers for rows; epochs have those from 0 on
SHORT_DOCUMENTS = 0.25  # the share of text in documents that cannot fill a row, past which full rows are refused

Chances = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RowSpans:
    """Stretches [start, stop) of some rows: of the first text, of the second (empty if there is none), and labels."""

    first: Positions  # (rows, 2)
    second: Positions  # (rows, 2)
    labels: NDArray[np.int64]


class RowSampler:
    """The order of rows. A subclass says what a row is made of, and whether each has all `tokens`."""

    full: bool

    def __init__(self, text: TokenStream, *, tokens: int, seed: int, least: int = 0) -> None:
        self.text, self.tokens, self.seed = text, tokens, seed
        fit = np.diff(text.starts) // tokens
        # One row fewer than would fit gives the grid room to shift.
        self._cells = np.maximum(fit - (fit > 1), least)
        self.epoch = int(self._cells.sum())
        self._order: tuple[int, Positions] | None = None

    def spans(self, first: int, count: int) -> RowSpans:
        """Rows `first` to `first + count` of the endless order."""
        raise NotImplementedError

    def _anchors(self, first: int, count: int) -> Positions:
        """The places in the text that rows begin at, or near."""
        found: list[Positions] = []
        while count:
            epoch, at = divmod(first, self.epoch)
            part = self._epoch(epoch)[at : at + count]
            found.append(part)
            first, count = first + len(part), count - len(part)
        return np.concatenate(found)

    def _epoch(self, number: int) -> Positions:
        if self._order is None or self._order[0] != number:
            chance = self._random(number)
            sizes = np.diff(self.text.starts)
            # The grid may shift by what it leaves free; the one cell of a small piece may lie anywhere in it.
            room = np.where(sizes < self.tokens, sizes, sizes - self._cells * self.tokens + 1)
            shift = self.text.starts[:-1] + chance.integers(room)
            cells = np.arange(self.epoch) - np.repeat(np.cumsum(self._cells) - self._cells, self._cells)
            anchors = np.repeat(shift, self._cells) + cells * self.tokens
            self._order = number, anchors[chance.permutation(self.epoch)]
        return self._order[1]

    def _random(self, stream: int, at: int = 0) -> np.random.Generator:
        """Random numbers that follow from the seed: of a stream of their own, from its place `at` on."""
        # Of a list numpy would make floats where a number is past 2**63, and lose digits of the seed.
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
    """A row is two texts, A ending and B beginning with a sentence, `tokens` tokens together.

    `kind` next: half of the Bs follow their A in its document, half come from another document. order: B always follows
    A, but half of the pairs are turned round. A share `short` of the rows has one sentence a side; without such rows
    all are full, for which documents too short to fill one only give their A, or nothing where order is asked.
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
        self._able = sizes >= whole  # to give both sides of a pair
        unable = sizes[~self._able].sum() / text.tokens
        if self.full and unable > SHORT_DOCUMENTS:
            raise InputError(
                f"{100 * unable:.0f}% of the text is in documents of fewer than {tokens} tokens, which cannot fill a "
                "row: use a smaller data.max_length, or objective.short_seq_prob above 0"
            )
        # Where the B of a false pair comes from, or a pair whose document is not able to give one.
        sources = self._able if self.full or kind == "order" else np.full(len(sizes), True)
        if sources.sum() < (needed := 2 if kind == "next" else 1):
            raise InputError(
                f"the text has {sources.sum()} documents of at least {whole} tokens, and such pairs need {needed}: "
                "use more text, a smaller data.max_length, or objective.short_seq_prob above 0"
            )
        # How many tokens of sources lie before each document.
        self._before: Positions = np.concatenate([[0], np.cumsum(sizes * sources)])
        # Pairs of documents that give A alone are all false: so many fewer of the others are.
        given = unable if kind == "next" else 0.0
        self._false = max(0.5 - given, 0.0) / max(1 - given, 0.5)

    def spans(self, first: int, count: int) -> RowSpans:
        chance = self._random(ROWS, first).random((count, DRAWS))
        anchors = self._anchors(first, count)
        document = self._document(anchors)
        able = self._able[document]
        if self.kind == "order":
            anchors[~able] = self._source(_scaled(chance[~able, 3], self._before[-1]))
            document = self._document(anchors)
        short = chance[:, 0] < self.short
        start, cut, stop = self._cut(anchors, document, chance[:, 1])
        start[short], cut[short], stop[short] = self._sentences(anchors[short], document[short])
        labels = np.where(chance[:, 2] < self._false, OTHER, FOLLOWS)
        one, two = np.stack([start, cut], axis=1), np.stack([cut, stop], axis=1)
        if self.kind == "next":
            labels[~able] = OTHER
            false = labels == OTHER
            room = self.tokens - (cut - start)
            two[false] = self._elsewhere(document[false], room[false], short[false], chance[false, 3])
        one, two = self._trimmed(one, two)
        if self.kind == "order":
            turned = (labels == OTHER)[:, None]
            one, two = np.where(turned, two, one), np.where(turned, one, two)
        return RowSpans(one, two, labels)

    def _document(self, places: Positions) -> Positions:
        """The number of the document that a place is in."""
        return np.searchsorted(self.text.documents, places, side="right") - 1

    def _stretch(self, places: Positions, document: Positions, room: Positions | int) -> tuple[Positions, Positions]:
        """`room` tokens of a document from the start of a place's sentence on; near the document's end, the last ones.

        Of a sentence that is longer than a row all places must be read: then the place itself is the start.
        """
        begin, end = self.text.documents[document], self.text.documents[document + 1]
        start = self.text.sentences[np.searchsorted(self.text.sentences, places, side="right") - 1]
        start = np.where(places - start < self.tokens, start, places)
        start = np.maximum(np.minimum(start, end - room), begin)
        return start, np.minimum(start + room, end)

    def _cut(self, anchors: Positions, document: Positions, chance: Chances) -> tuple[Positions, Positions, Positions]:
        """Full rows: start, cut and stop of a stretch, cut between two sentences, or anywhere in the only one."""
        sentences = self.text.sentences
        start, stop = self._stretch(anchors, document, self.tokens)
        low, high = np.searchsorted(sentences, start, side="right"), np.searchsorted(sentences, stop, side="left")
        at_sentence = sentences[np.minimum(low + _scaled(chance, high - low), len(sentences) - 1)]
        anywhere = start + 1 + _scaled(chance, stop - start - 1)
        return start, np.where(high > low, at_sentence, anywhere), stop

    def _sentences(self, anchors: Positions, document: Positions) -> tuple[Positions, Positions, Positions]:
        """Short rows: a sentence and the next one; the halves of the only one."""
        sentences = self.text.sentences
        first = np.searchsorted(sentences, self.text.documents[document])
        last = np.searchsorted(sentences, self.text.documents[document + 1]) - 1
        number = np.searchsorted(sentences, anchors, side="right") - 1
        number = np.maximum(np.minimum(number, last - 1), first)  # the last has none behind it
        start, cut, stop = sentences[number], sentences[number + 1], sentences[np.minimum(number + 2, last + 1)]
        return start, np.where(first == last, (start + cut + 1) // 2, cut), stop

    def _elsewhere(self, document: Positions, room: Positions, short: NDArray[np.bool_], chance: Chances) -> Positions:
        """The B of false pairs: a stretch of another document, each place of which is as likely as any other."""
        before = self._before[document]
        own = self._before[document + 1] - before
        at = _scaled(chance, self._before[-1] - own)
        places = self._source(at + own * (at >= before))
        number = np.searchsorted(self.text.sentences, places, side="right") - 1
        start, stop = self._stretch(places, self._document(places), room)
        start = np.where(short, self.text.sentences[number], start)
        return np.stack([start, np.where(short, self.text.sentences[number + 1], stop)], axis=1)

    def _source(self, numbers: Positions) -> Positions:
        """The places in the text of tokens that are counted through the sources alone."""
        document = np.searchsorted(self._before, numbers, side="right") - 1
        return self.text.documents[document] + numbers - self._before[document]

    def _trimmed(self, first: Positions, second: Positions) -> tuple[Positions, Positions]:
        """No row longer than `tokens`: A keeps its end, B its beginning."""
        size, other = first[:, 1] - first[:, 0], second[:, 1] - second[:, 0]
        kept = np.minimum(size, np.maximum(self.tokens // 2, self.tokens - other))
        first = np.stack([first[:, 1] - kept, first[:, 1]], axis=1)
        return first, np.stack([second[:, 0], second[:, 0] + np.minimum(other, self.tokens - kept)], axis=1)


def _scaled(chance: Chances, count: Positions) -> Positions:
    """Of `count` things one: a number from 0 on."""
    found: Positions = (chance * count).astype(np.int64)
    return found
