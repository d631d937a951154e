"""Rows to tensors: what one forward pass reads, `tokens` tokens of it, nearly none of them padding.

Knows special tokens and how a row is laid out ([CLS] A [SEP] B [SEP]); knows no mask and no model. Full rows make a
rectangle. Others lie one behind the other, and the last few tokens are filled up, so that all portions have one shape.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from regard.data.masking import IGNORE_INDEX
from regard.errors import InputError
from regard.text import Tokenizer
from regard.training.pretraining.row_sampler import RowSampler

__all__ = ["MicroBatch", "MicroBatches", "PositionShift", "ahead"]

AHEAD = 4  # portions that are made before they are asked for
SAMPLE = 1024  # rows whose mean length tells how many a portion may take
SPARE = 1.25  # how many times as many it looks at, as some are shorter


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """`number` says which it is of the endless order, `next` the row behind it. Without `starts`: a rectangle."""

    number: int
    next: int
    tokens: int  # filling not counted
    ids: Tensor  # (B, T) or (N,)
    segments: Tensor | None = None
    labels: Tensor | None = None  # one a row
    starts: Tensor | None = None
    places: Tensor | None = None

    def to(self, device: torch.device) -> MicroBatch:
        return self._changed(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> MicroBatch:
        """In memory that a GPU can read while the processor goes on."""
        return self._changed(lambda tensor: tensor.pin_memory())

    def _changed(self, change: Callable[[Tensor], Tensor]) -> MicroBatch:
        def changed(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else change(tensor)

        return replace(
            self,
            ids=change(self.ids),
            segments=changed(self.segments),
            labels=changed(self.labels),
            starts=changed(self.starts),
            places=changed(self.places),
        )


@dataclass(frozen=True)
class PositionShift:
    """Which rows begin further on than at position 0: a share of them, each by up to `most` positions.

    RowSampler that are shorter than a model may read would otherwise leave its last positions as chance made them.
    """

    share: float
    most: int
    seed: int

    def of(self, number: int, rows: int) -> np.ndarray:
        """By how much each row of a portion is shifted."""
        chance = np.random.default_rng([self.seed, number])
        return np.where(chance.random(rows) < self.share, chance.integers(self.most, size=rows, endpoint=True), 0)


class MicroBatches:
    """Cuts the order of rows into portions of `tokens` tokens. `bare` rows, as GPT reads them, get nothing around."""

    def __init__(
        self,
        rows: RowSampler,
        tokenizer: Tokenizer,
        *,
        tokens: int,
        pairs: bool,
        bare: bool = False,
        shift: PositionShift | None = None,
    ) -> None:
        self.rows, self.tokens, self.pairs, self.bare, self.shift = rows, tokens, pairs, bare, shift
        self.full = rows.full and shift is None
        if not bare and (tokenizer.cls is None or tokenizer.sep is None):
            raise InputError("this tokenizer has no tokens [CLS] and [SEP], which go around a row; use another")
        self.cls, self.sep = tokenizer.cls or 0, tokenizer.sep or 0
        self.pad = self.sep if tokenizer.pad is None else tokenizer.pad
        self.length = rows.tokens + (0 if bare else 3 if pairs else 2)
        if tokens < self.length:
            raise InputError(
                f"a portion of {tokens} tokens has no room for one row of {self.length}: "
                "use a larger data.tokens_per_batch or data.tokens_per_micro_batch, or a smaller data.max_length"
            )
        self._most = tokens // self.length if self.full else self._estimate()

    def portions(self, number: int = 0, row: int = 0) -> Iterator[MicroBatch]:
        """All portions from one on, whose number and first row are told."""
        while True:
            portion = self.portion(number, row)
            yield portion
            number, row = number + 1, portion.next

    def portion(self, number: int, row: int) -> MicroBatch:
        spans = self.rows.spans(row, self._most)
        read = self.rows.text.read
        size = self._most * self.length if self.full else self.tokens
        ids = np.full(size, self.pad, dtype=np.int32)
        segments = np.zeros(size, dtype=np.int32)
        starts = [0]
        at = 0
        for (begin, end), (second, second_end) in zip(spans.first.tolist(), spans.second.tolist(), strict=True):
            length, other = end - begin, second_end - second
            stop = at + length + other + (0 if self.bare else 3 if other else 2)
            if stop > size:
                break
            if self.bare:
                ids[at:stop] = read(begin, end)
            else:
                ids[at] = self.cls
                ids[at + 1 : at + 1 + length] = read(begin, end)
                ids[at + 1 + length] = self.sep
                if other:
                    ids[at + 2 + length : stop - 1] = read(second, second_end)
                    ids[stop - 1] = self.sep
                    segments[at + 2 + length : stop] = 1
            at = stop
            starts.append(at)
        rows = len(starts) - 1
        portion = MicroBatch(number, row + rows, at, torch.from_numpy(ids))
        if self.pairs:
            labels = torch.from_numpy(spans.labels[:rows])
            portion = replace(portion, segments=torch.from_numpy(segments), labels=labels)
        return self._rectangle(portion) if self.full else self._packed(portion, starts)

    def _estimate(self) -> int:
        """The most rows that a portion looks at, and then has room for nearly always."""
        spans = self.rows.spans(0, SAMPLE)
        mean = (np.diff(spans.first) + np.diff(spans.second)).mean() + self.length - self.rows.tokens
        return int(SPARE * self.tokens / mean) + 1

    def _rectangle(self, portion: MicroBatch) -> MicroBatch:
        segments = portion.segments
        return replace(
            portion,
            ids=portion.ids.view(-1, self.length),
            segments=None if segments is None else segments.view(-1, self.length),
        )

    def _packed(self, portion: MicroBatch, starts: list[int]) -> MicroBatch:
        """What is filled up counts as rows without labels; then empty rows up to a number that is always the same."""
        filled = [*starts, *range(starts[-1] + self.length, self.tokens, self.length)]
        ends = np.full(self._most + self.tokens // self.length + 2, self.tokens, dtype=np.int32)
        ends[: len(filled)] = filled
        begins = ends[:-1] if self.shift is None else ends[:-1] - self.shift.of(portion.number, len(ends) - 1)
        places = np.arange(self.tokens) - np.repeat(begins, np.diff(ends))
        labels = portion.labels
        if labels is not None:
            labels = torch.cat([labels, labels.new_full((len(ends) - len(starts),), IGNORE_INDEX)])
        return replace(portion, labels=labels, starts=torch.from_numpy(ends), places=torch.from_numpy(places))


def ahead(portions: Iterator[MicroBatch], *, pin: bool) -> Generator[MicroBatch]:
    """The same portions, made by another thread while the last ones are worked on."""

    def make() -> MicroBatch | None:
        portion = next(portions, None)
        return portion.pinned() if pin and portion is not None else portion

    thread = ThreadPoolExecutor(1)
    try:
        waiting = deque(thread.submit(make) for _ in range(AHEAD))
        while (portion := waiting.popleft().result()) is not None:
            waiting.append(thread.submit(make))
            yield portion
    finally:
        thread.shutdown(cancel_futures=True)
