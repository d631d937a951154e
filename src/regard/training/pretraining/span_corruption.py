"""Span corruption: stretches of a text are dropped, a sentinel stands for each, and the target says what was dropped.

Knows ids and random numbers; knows no text and no model. Every row drops as many tokens in as many stretches, so all
batches have one shape; where they lie and how long each is, is chance. Works where the ids are, without waiting for it.

    text    The dog chased the cat up the tree .
    input   The <0> the cat <1> tree . end
    target  <0> dog chased <1> up the <2> end
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError

__all__ = ["CorruptedRows", "SpanCorruption", "SpanSizes"]


@dataclass(frozen=True)
class SpanSizes:
    """Of a row: its `tokens` of text, how many of them are `dropped`, in how many `spans`."""

    tokens: int
    dropped: int
    spans: int

    @classmethod
    def of(cls, tokens: int, *, rate: float, span: float) -> SpanSizes:
        """For a text of so many tokens, two at least: `rate` of them dropped, `span` together on average."""
        dropped = min(max(round(tokens * rate), 1), tokens - 1)
        return cls(tokens, dropped, min(max(round(dropped / span), 1), tokens - dropped + 1))

    @classmethod
    def filling(cls, length: int, *, rate: float, span: float) -> SpanSizes:
        """For as much text as becomes an input of `length` tokens."""
        found = cls.of(2, rate=rate, span=span)
        while (longer := cls.of(found.tokens + 1, rate=rate, span=span)).inputs <= length:
            found = longer
        return found

    @property
    def inputs(self) -> int:
        """Tokens of an input, its end counted."""
        return self.tokens - self.dropped + self.spans + 1

    @property
    def targets(self) -> int:
        """Tokens of a target, its last sentinel and its end counted."""
        return self.dropped + self.spans + 2


@dataclass(frozen=True, eq=False)
class CorruptedRows:
    """What the encoder reads, (B, inputs), and what the decoder has to say, (B, targets)."""

    inputs: Tensor
    targets: Tensor


class SpanCorruption:
    """Drops stretches of rows that have `sizes.tokens` tokens. `sentinels` are ids, from the first on."""

    def __init__(
        self, sizes: SpanSizes, *, sentinels: Sequence[int], end: int, device: torch.device | None = None
    ) -> None:
        if len(sentinels) <= sizes.spans:
            raise InputError(
                f"a row of {sizes.inputs} tokens has {sizes.spans} dropped stretches, and the vocabulary has "
                f"{len(sentinels)} sentinels, of which one more is needed: use a smaller data.max_length or "
                "objective.mlm_probability, or a larger objective.mean_noise_span_length"
            )
        self.sizes, self.end = sizes, end
        self.sentinels = torch.tensor(sentinels[: sizes.spans + 1], device=device)

    def __call__(self, ids: Tensor, generator: torch.Generator) -> CorruptedRows:
        ids = ids.long()
        dropped = self._dropped(len(ids), generator, ids.device)
        first = dropped & ~F.pad(dropped, (1, 0))[:, :-1]
        sentinel = self.sentinels[(first.cumsum(1) - 1).clamp(min=0)]
        sizes = self.sizes
        inputs = _kept(torch.where(first, sentinel, ids), ~dropped | first, sizes.inputs - 1)
        # Every token twice, as its sentinel and as itself: a stretch keeps the first one's sentinel and all itself.
        both = torch.stack([sentinel, ids], dim=-1).flatten(1)
        targets = _kept(both, torch.stack([first, dropped], dim=-1).flatten(1), sizes.targets - 2)
        last = self.sentinels[-1:].expand(len(ids), 1)
        end = torch.full_like(last, self.end)
        return CorruptedRows(torch.cat([inputs, end], dim=1), torch.cat([targets, last, end], dim=1))

    def _dropped(self, rows: int, generator: torch.Generator, device: torch.device) -> Tensor:
        """Which tokens are dropped, (B, tokens): all ways to lay the stretches, one token apart at least, are alike."""
        sizes = self.sizes
        spans = _parts(sizes.dropped, sizes.spans, rows, generator, device)
        # Before the first stretch and behind the last there may be nothing, so there one token is lent.
        between = _parts(sizes.tokens - sizes.dropped + 2, sizes.spans + 1, rows, generator, device)
        between[:, 0] -= 1
        between[:, -1] -= 1
        lengths = torch.stack([between, F.pad(spans, (0, 1))], dim=-1).flatten()
        kinds = torch.tensor([False, True], device=device).repeat(rows * (sizes.spans + 1))
        return kinds.repeat_interleave(lengths, output_size=rows * sizes.tokens).view(rows, sizes.tokens)


def _parts(total: int, count: int, rows: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Whole numbers from 1 on whose sum is `total`, (rows, count); all such are as likely."""
    order = torch.rand(rows, total - 1, generator=generator, device=device).argsort(1)
    cuts = order[:, : count - 1].sort(1).values + 1
    return F.pad(F.pad(cuts, (1, 0)), (0, 1), value=total).diff(dim=1)


def _kept(ids: Tensor, keep: Tensor, count: int) -> Tensor:
    """The ids that are kept, (B, count), in their order."""
    return ids.gather(1, (~keep).to(torch.int8).argsort(dim=1, stable=True)[:, :count])
