"""Pairs to batches: rows of one length together, up to so many tokens, in a new order each epoch.

Knows lengths and ids. What chance decides follows from the seed and the epoch alone, and every epoch has as many
batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import collate
from regard.nn import Padded

__all__ = ["EncodedPair", "TranslationBatch", "gather", "grouped"]


@dataclass(frozen=True)
class EncodedPair:
    """A pair as ids, each side with its end token."""

    source: list[int]
    target: list[int]

    @property
    def length(self) -> int:
        """Of the longer side."""
        return max(len(self.source), len(self.target))


@dataclass(frozen=True, eq=False)
class TranslationBatch:
    """Sources (B, S) with their layout, and targets (B, T), padded on the right."""

    source: Tensor
    layout: Padded
    target: Tensor

    def to(self, device: torch.device) -> TranslationBatch:
        keep = self.layout.mask
        layout = Padded(None if keep is None else keep.to(device))
        return TranslationBatch(self.source.to(device), layout, self.target.to(device))

    def twice(self) -> TranslationBatch:
        """All rows, and once more behind them."""
        keep = self.layout.mask
        layout = Padded(None if keep is None else keep.repeat(2, 1))
        return TranslationBatch(self.source.repeat(2, 1), layout, self.target.repeat(2, 1))


def gather(pairs: Sequence[EncodedPair], *, padding: int) -> TranslationBatch:
    """One batch of pairs; `padding` fills up the targets. What fills up the sources is hidden by their layout."""
    source = collate([pair.source for pair in pairs], packed=False)
    target = collate([pair.target for pair in pairs], packed=False, padding=padding)
    assert isinstance(source.layout, Padded)
    return TranslationBatch(source.ids, source.layout, target.ids)


def grouped(pairs: Sequence[EncodedPair], *, budget: int, seed: int, epoch: int) -> list[list[int]]:
    """The places of the pairs of each batch of an epoch.

    A batch times its longest side, padding counted, is at most `budget`, or it is one pair.
    """
    chance = np.random.default_rng([seed, epoch])
    order = chance.permutation(len(pairs)).tolist()
    # Pairs of one length change places from epoch to epoch. The lengths in their order do not, nor where they are cut.
    order.sort(key=lambda place: (pairs[place].length, len(pairs[place].target), len(pairs[place].source)))
    batches: list[list[int]] = []
    for place in order:
        # In rising order the pair at hand is the longest.
        if not batches or (len(batches[-1]) + 1) * pairs[place].length > budget:
            batches.append([])
        batches[-1].append(place)
    return [batches[number] for number in chance.permutation(len(batches))]
