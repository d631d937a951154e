"""Micro-batches: rows as tensors of one forward pass, with special tokens ([CLS] A [SEP] B [SEP]) and no masks.

Full rows form a rectangle. Other rows are packed one after the other and padded at the end, so that all micro-batches
have one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.masking import IGNORE_INDEX
from regard.errors import InputError
from regard.text import Tokenizer
from regard.training.recipes.pretraining.row_sampler import RowSampler

SAMPLE = 1024  # rows whose mean length gives the expected rows per micro-batch
SPARE = 1.25  # times as many rows are considered, because some are shorter


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """`number` is its index in the endless sequence, `next_row` the row after it. A rectangle if it has no `starts`."""

    number: int
    next_row: int
    tokens: int  # without padding
    ids: Tensor  # (B, T) or (N,)
    segments: Tensor | None = None
    labels: Tensor | None = None  # one per row
    starts: Tensor | None = None
    positions: Tensor | None = None

    def to(self, device: torch.device) -> MicroBatch:
        return self._changed(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> MicroBatch:
        """In pinned memory, which a GPU copies asynchronously."""
        return self._changed(lambda tensor: tensor.pin_memory())

    def _changed(self, change: Callable[[Tensor], Tensor]) -> MicroBatch:
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        changed: dict[str, Any] = {name: change(tensor) for name, tensor in tensors.items()}
        return replace(self, **changed)


@dataclass(frozen=True)
class PositionShift:
    """A share of the rows begins at a random position up to `most` instead of position 0.

    Otherwise rows that are shorter than what the model can read would leave its last positions untrained.
    """

    probability: float
    most: int
    seed: int

    def sample(self, number: int, rows: int) -> np.ndarray:
        """The shift of each row of a micro-batch."""
        generator = np.random.default_rng([self.seed, number])
        return np.where(
            generator.random(rows) < self.probability, generator.integers(self.most, size=rows, endpoint=True), 0
        )


class MicroBatches:
    """Divides the sequence of rows into micro-batches of `tokens` tokens. `bare` rows have no special tokens (GPT)."""

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
        if not bare and (tokenizer.cls_token_id is None or tokenizer.sep_token_id is None):
            raise InputError("this tokenizer has no tokens [CLS] and [SEP], which go around a row; use another")
        self.cls, self.sep = tokenizer.cls_token_id or 0, tokenizer.sep_token_id or 0
        self.pad = self.sep if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        self.length = rows.tokens + (0 if bare else 3 if pairs else 2)
        if tokens < self.length:
            raise InputError(
                f"a micro-batch of {tokens} tokens has no room for one row of {self.length}: "
                "use a larger data.tokens_per_batch or data.tokens_per_micro_batch, or a smaller data.max_length"
            )
        self._most = tokens // self.length if self.full else self._estimate()

    def stream(self, number: int = 0, row: int = 0) -> Iterator[MicroBatch]:
        """All micro-batches from the one with this number and first row."""
        while True:
            batch = self.micro_batch(number, row)
            yield batch
            number, row = number + 1, batch.next_row

    def micro_batch(self, number: int, row: int) -> MicroBatch:
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
        shape = (-1, self.length) if self.full else (-1,)
        batch = MicroBatch(number, row + rows, at, torch.from_numpy(ids).view(shape))
        if self.pairs:
            labels = torch.from_numpy(spans.labels[:rows])
            batch = replace(batch, segments=torch.from_numpy(segments).view(shape), labels=labels)
        return batch if self.full else self._packed(batch, starts)

    def _estimate(self) -> int:
        """The maximum number of rows considered for a micro-batch; nearly always all that fit."""
        spans = self.rows.spans(0, SAMPLE)
        mean = (np.diff(spans.first) + np.diff(spans.second)).mean() + self.length - self.rows.tokens
        return int(SPARE * self.tokens / mean) + 1

    def _packed(self, batch: MicroBatch, starts: list[int]) -> MicroBatch:
        """Padding counts as rows without labels; empty rows are added up to a constant number of rows."""
        filled = [*starts, *range(starts[-1] + self.length, self.tokens, self.length)]
        ends = np.full(self._most + self.tokens // self.length + 2, self.tokens, dtype=np.int32)
        ends[: len(filled)] = filled
        begins = ends[:-1] if self.shift is None else ends[:-1] - self.shift.sample(batch.number, len(ends) - 1)
        positions = np.arange(self.tokens) - np.repeat(begins, np.diff(ends))
        labels = batch.labels
        if labels is not None:
            labels = torch.cat([labels, labels.new_full((len(ends) - len(starts),), IGNORE_INDEX)])
        return replace(batch, labels=labels, starts=torch.from_numpy(ends), positions=torch.from_numpy(positions))
