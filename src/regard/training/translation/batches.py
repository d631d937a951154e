"""Batches of sentence pairs: pairs of similar length together, in a new order each epoch.

The order follows from the seed and the epoch, and every epoch has the same number of batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import collate
from regard.nn import Padded


@dataclass(frozen=True)
class EncodedPair:
    """Token ids of a pair; each side ends with its end token."""

    source: list[int]
    target: list[int]

    @property
    def length(self) -> int:
        """Tokens of the longer side."""
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
        """All rows, followed by a copy of them."""
        keep = self.layout.mask
        layout = Padded(None if keep is None else keep.repeat(2, 1))
        return TranslationBatch(self.source.repeat(2, 1), layout, self.target.repeat(2, 1))


def collate_pairs(pairs: Sequence[EncodedPair], *, padding: int) -> TranslationBatch:
    """One batch of pairs; targets are padded with `padding`, the padding of sources is masked by their layout."""
    source = collate([pair.source for pair in pairs], packed=False)
    target = collate([pair.target for pair in pairs], packed=False, padding=padding)
    assert isinstance(source.layout, Padded)
    return TranslationBatch(source.ids, source.layout, target.ids)


def group_by_length(pairs: Sequence[EncodedPair], *, tokens_per_batch: int, seed: int, epoch: int) -> list[list[int]]:
    """The indices of the pairs of each batch of an epoch.

    The tokens of a batch, with padding, are at most `tokens_per_batch`, unless it is a single pair.
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(pairs)).tolist()
    # Pairs of equal length are shuffled; the sorted lengths, and so the batch boundaries, are the same in every epoch.
    order.sort(key=lambda index: (pairs[index].length, len(pairs[index].target), len(pairs[index].source)))
    batches: list[list[int]] = []
    for index in order:
        # In ascending order, the current pair is the longest.
        if not batches or (len(batches[-1]) + 1) * pairs[index].length > tokens_per_batch:
            batches.append([])
        batches[-1].append(index)
    return [batches[number] for number in generator.permutation(len(batches))]
