"""Rows to tensors: what one forward pass reads, `tokens` tokens of it, nearly none of them padding.

Knows special tokens and how a row is laid out ([CLS] A [SEP] B [SEP]); knows no mask and no model. Full rows make a
rectangle. Others lie one behind the other, and the last few tokens are filled up, so that all portions have one shape.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from regard.data.masking import IGNORED
from regard.pretrain.rows import Rows
from regard.text import Tokenizer

__all__ = ["Portion", "Portions", "ahead"]

AHEAD = 4  # portions that are made before they are asked for


@dataclass(frozen=True, eq=False)
class Portion:
    """`number` says which it is of the endless order, `next` the row behind it. Without `starts`: a rectangle of rows."""

    number: int
    next: int
    tokens: int  # filling not counted
    ids: Tensor  # (B, T) or (N,)
    segments: Tensor | None = None
    labels: Tensor | None = None  # one a row
    starts: Tensor | None = None
    places: Tensor | None = None

    def to(self, device: torch.device) -> Portion:
        moved = {
            field.name: value.to(device, non_blocking=True)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return replace(self, **moved)

    def pinned(self) -> Portion:
        """In memory that a GPU can read while the processor goes on."""
        return replace(self, **{f.name: v.pin_memory() for f in fields(self) if isinstance(v := getattr(self, f.name), Tensor)})


class Portions:
    """Cuts the order of rows into portions of `tokens` tokens. `bare` rows, as GPT reads them, get no special tokens."""

    def __init__(self, rows: Rows, tokenizer: Tokenizer, *, tokens: int, pairs: bool, bare: bool = False) -> None:
        self.rows, self.tokens, self.pairs, self.bare = rows, tokens, pairs, bare
        self.cls, self.sep, self.pad = tokenizer.cls, tokenizer.sep, tokenizer.pad
        self.length = rows.tokens + (0 if bare else 3 if pairs else 2)
        count = tokens // self.length
        self._most = count if rows.full else max(count + count // 2, 1)

    def portions(self, number: int = 0, row: int = 0) -> Iterator[Portion]:
        """All portions from one on, whose number and first row are told."""
        while True:
            portion = self.portion(number, row)
            yield portion
            number, row = number + 1, portion.next

    def portion(self, number: int, row: int) -> Portion:
        spans = self.rows.spans(row, self._most)
        firsts, seconds = spans.first.tolist(), spans.second.tolist()
        read = self.rows.text.read
        size = self._most * self.length if self.rows.full else self.tokens
        ids = np.full(size, self.pad or 0, dtype=np.int32)
        segments = np.zeros(size, dtype=np.int32)
        starts = [0]
        at = 0
        for (begin, end), (second, second_end) in zip(firsts, seconds, strict=True):
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
        labels = spans.labels[:rows]
        portion = Portion(number, row + rows, at, torch.from_numpy(ids))
        if self.pairs:
            portion = replace(portion, segments=torch.from_numpy(segments), labels=torch.from_numpy(labels))
        return self._rectangle(portion) if self.rows.full else self._packed(portion, starts)

    def _rectangle(self, portion: Portion) -> Portion:
        segments = portion.segments
        return replace(
            portion,
            ids=portion.ids.view(-1, self.length),
            segments=None if segments is None else segments.view(-1, self.length),
        )

    def _packed(self, portion: Portion, starts: list[int]) -> Portion:
        """What is filled up counts as rows without labels; then empty rows up to a number that is always the same."""
        filled = [*starts, *range(starts[-1] + self.length, self.tokens, self.length)]
        ends = np.full(self._most + self.tokens // self.length + 2, self.tokens, dtype=np.int32)
        ends[: len(filled)] = filled
        places = np.arange(self.tokens) - np.repeat(ends[:-1], np.diff(ends))
        labels = np.full(len(ends) - 1, IGNORED, dtype=np.int64)
        if portion.labels is not None:
            labels[: len(starts) - 1] = portion.labels
        return replace(
            portion, labels=torch.from_numpy(labels), starts=torch.from_numpy(ends), places=torch.from_numpy(places)
        )


def ahead(portions: Iterator[Portion], *, pin: bool) -> Iterator[Portion]:
    """The same portions, made by another thread while the last ones are worked on."""
    ready: queue.Queue[Portion | BaseException] = queue.Queue(AHEAD)
    over = threading.Event()

    def put(item: Portion | BaseException) -> bool:
        while not over.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def make() -> None:
        try:
            for portion in portions:
                if not put(portion.pinned() if pin else portion):
                    return
        except BaseException as error:
            put(error)

    threading.Thread(target=make, daemon=True).start()
    try:
        while True:
            found = ready.get()
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        over.set()
