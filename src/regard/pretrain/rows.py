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
from regard.pretrain.text import Places, Text

__all__ = ["FOLLOWS", "Pairs", "Rows", "Spans", "Stretches"]

FOLLOWS, OTHER = 0, 1  # the labels of a pair, as BERT numbers them
BLOCK = 4096  # rows whose random numbers are drawn together
DRAWS = 5
SHORT_DOCUMENTS = 0.25  # the share of text in documents that cannot fill a row, past which full rows are refused


@dataclass(frozen=True, eq=False)
class Spans:
    """Stretches [start, stop) of some rows: of the first text, of the second (empty where there is none), and labels."""

    first: Places  # (rows, 2)
    second: Places  # (rows, 2)
    labels: NDArray[np.int64]


class Rows:
    """The order of rows. A subclass says what a row is made of, and whether each has all `tokens`."""

    full: bool

    def __init__(self, text: Text, *, tokens: int, seed: int, least: int = 0) -> None:
        self.text, self.tokens, self.seed = text, tokens, seed
        fit = np.diff(text.starts) // tokens
        # One row fewer than would fit gives the grid room to shift.
        self._cells = np.maximum(fit - (fit > 1), least)
        self.epoch = int(self._cells.sum())
        self._order: tuple[int, Places] | None = None

    def spans(self, first: int, count: int) -> Spans:
        """Rows `first` to `first + count` of the endless order."""
        raise NotImplementedError

    def _anchors(self, first: int, count: int) -> Places:
        """The places in the text that rows begin at, or near."""
        found: list[Places] = []
        while count:
            epoch, at = divmod(first, self.epoch)
            part = self._epoch(epoch)[at : at + count]
            found.append(part)
            first, count = first + len(part), count - len(part)
        return np.concatenate(found)

    def _epoch(self, number: int) -> Places:
        if self._order is None or self._order[0] != number:
            chance = np.random.Generator(np.random.Philox(key=[self.seed, number]))
            sizes = np.diff(self.text.starts)
            room = np.maximum(sizes - self._cells * self.tokens, 0)
            shift = self.text.starts[:-1] + chance.integers(room + 1)
            cells = np.arange(self.epoch) - np.repeat(np.cumsum(self._cells) - self._cells, self._cells)
            anchors = np.repeat(shift, self._cells) + cells * self.tokens
            self._order = number, anchors[chance.permutation(self.epoch)]
        return self._order[1]

    def _draws(self, first: int, count: int) -> NDArray[np.float64]:
        """Random numbers of rows, (count, DRAWS) in [0, 1)."""
        blocks = range(first // BLOCK, (first + count - 1) // BLOCK + 1)
        drawn = [
            np.random.Generator(np.random.Philox(key=[self.seed, (1 << 62) + block])).random((BLOCK, DRAWS))
            for block in blocks
        ]
        start = first - blocks.start * BLOCK
        return np.concatenate(drawn)[start : start + count]


class Stretches(Rows):
    """A row is `tokens` tokens of running text, across documents."""

    full = True

    def __init__(self, text: Text, *, tokens: int, seed: int) -> None:
        super().__init__(text, tokens=tokens, seed=seed)
        if not self.epoch:
            raise InputError(
                f"the text has {text.tokens} tokens, too few for one row of {tokens}: use more text, or a smaller data.length"
            )

    def spans(self, first: int, count: int) -> Spans:
        starts = self._anchors(first, count)
        nothing = np.zeros((count, 2), dtype=np.int64)
        return Spans(np.stack([starts, starts + self.tokens], axis=1), nothing, np.full(count, FOLLOWS))


class Pairs(Rows):
    """A row is two texts, A ending and B beginning with a sentence, `tokens` tokens together.

    `kind` next: half of the Bs follow their A in its document, half come from another document. order: B always follows
    A, but half of the pairs are turned round. A share `short` of the rows has one sentence a side; without such rows
    all are full, for which documents too short to fill one only give their A.
    """

    def __init__(
        self, text: Text, *, tokens: int, seed: int, kind: Literal["next", "order"] = "next", short: float = 0.0
    ) -> None:
        super().__init__(text, tokens=tokens, seed=seed, least=1)
        self.kind, self.short = kind, short
        sizes = np.diff(text.documents)
        if kind == "next" and len(sizes) < 2:
            raise InputError(
                "the corpus is one document, so next-sentence pairs cannot be made: put a blank line between documents, "
                'or train without pairs (--set objective.pairs="none")'
            )
        self.full = not short
        long = sizes >= tokens
        if self.full and sizes[~long].sum() > SHORT_DOCUMENTS * text.tokens:
            raise InputError(
                f"{100 * sizes[~long].sum() / text.tokens:.0f}% of the text is in documents of fewer than {tokens} tokens, "
                "which cannot fill a row: use a smaller data.length, or objective.short_pairs above 0"
            )
        # Where the B of a false pair may come from.
        self._sources = np.flatnonzero(long) if self.full else np.arange(len(sizes))
        self._ends = np.cumsum(sizes[self._sources])

    def spans(self, first: int, count: int) -> Spans:
        chance = self._draws(first, count)
        anchors = self._anchors(first, count)
        document = np.searchsorted(self.text.documents, anchors, side="right") - 1
        short = chance[:, 0] < self.short
        start, cut, stop = self._cut(anchors, document, chance[:, 1])
        if short.any():
            one = self._sentences(anchors[short], document[short])
            for whole, part in zip((start, cut, stop), one, strict=True):
                whole[short] = part
        second = np.stack([cut, stop], axis=1)
        labels = np.where(chance[:, 2] < 0.5, OTHER, FOLLOWS)
        whole = self.tokens if self.full else 2
        labels[stop - start < whole] = OTHER if self.kind == "next" else FOLLOWS
        if self.kind == "next":
            false = labels == OTHER
            second[false] = self._elsewhere(
                document[false], (self.tokens - (cut - start))[false], short[false], chance[false, 3]
            )
        return self._trimmed(np.stack([start, cut], axis=1), second, labels)

    def _cut(self, anchors: Places, document: Places, chance: NDArray[np.float64]) -> tuple[Places, Places, Places]:
        """Full rows: from a sentence's start on, or as near to the document's end as fills the row, cut at a sentence."""
        sentences = self.text.sentences
        begin, end = self.text.documents[document], self.text.documents[document + 1]
        start = sentences[np.searchsorted(sentences, anchors, side="right") - 1]
        start = np.maximum(np.minimum(start, end - self.tokens), begin)
        stop = np.minimum(start + self.tokens, end)
        low, high = np.searchsorted(sentences, start, side="right"), np.searchsorted(sentences, stop, side="left")
        inner = high - low
        at_sentence = sentences[np.minimum(low + (chance * inner).astype(np.int64), len(sentences) - 1)]
        anywhere = start + 1 + (chance * np.maximum(stop - start - 1, 0)).astype(np.int64)
        return start, np.minimum(np.where(inner > 0, at_sentence, anywhere), stop), stop

    def _sentences(self, anchors: Places, document: Places) -> tuple[Places, Places, Places]:
        """Short rows: a sentence and the next one; the halves of the only one."""
        sentences = self.text.sentences
        begin, end = self.text.documents[document], self.text.documents[document + 1]
        number = np.searchsorted(sentences, anchors, side="right") - 1
        number = np.where(sentences[number + 1] < end, number, number - 1)  # the last has none behind it
        only = sentences[np.maximum(number, 0)] < begin
        number = np.where(only, number + 1, number)
        start, cut = sentences[number], sentences[number + 1]
        stop = np.where(only, cut, sentences[np.minimum(number + 2, len(sentences) - 1)])
        return start, np.where(only, (start + cut + 1) // 2, cut), stop

    def _elsewhere(self, document: Places, room: Places, short: NDArray[np.bool_], chance: NDArray[np.float64]) -> Places:
        """The B of false pairs: a stretch of another document, each place of which is as likely as any other."""
        at = (chance * self._ends[-1]).astype(np.int64)
        source = np.searchsorted(self._ends, at, side="right")
        inside = at - (self._ends[source] - np.diff(self.text.documents)[self._sources[source]])
        same = self._sources[source] == document
        source = np.where(same, (source + 1) % len(self._sources), source)
        other = self._sources[source]
        begin, end = self.text.documents[other], self.text.documents[other + 1]
        sentences = self.text.sentences
        number = np.searchsorted(sentences, np.where(same, begin, begin + inside), side="right") - 1
        start = np.maximum(np.minimum(sentences[number], np.where(short, end, end - room)), begin)
        stop = np.where(short, sentences[number + 1], np.minimum(start + room, end))
        return np.stack([start, stop], axis=1)

    def _trimmed(self, first: Places, second: Places, labels: NDArray[np.int64]) -> Spans:
        """No row longer than `tokens`: A keeps its end, B its beginning. Where order is asked, false pairs turn round."""
        size, other = first[:, 1] - first[:, 0], second[:, 1] - second[:, 0]
        kept = np.minimum(size, np.maximum(self.tokens // 2, self.tokens - other))
        first = np.stack([first[:, 1] - kept, first[:, 1]], axis=1)
        second = np.stack([second[:, 0], second[:, 0] + np.minimum(other, self.tokens - kept)], axis=1)
        if self.kind == "order":
            turned = (labels == OTHER)[:, None]
            first, second = np.where(turned, second, first), np.where(turned, first, second)
        return Spans(first, second, labels)
