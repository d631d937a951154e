"""Encoded sentence pairs, their batches, and the loss of a translation model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.batch import collate
from regard.inference.translation.translator import TranslationModel
from regard.nn.masks import Padded


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


class TranslationObjective(nn.Module):
    """Cross-entropy of the target tokens with label smoothing.

    With `rdrop_weight` each pair is read twice with different dropout, and the symmetric KL divergence between the two
    predictions is added with that weight (R-Drop, Liang et al. 2021; their alpha is twice the weight).
    """

    def __init__(
        self, model: TranslationModel, *, label_smoothing: float, padding: int, rdrop_weight: float = 0.0
    ) -> None:
        super().__init__()
        self.model, self.padding = model, padding
        self.label_smoothing, self.rdrop_weight = label_smoothing, rdrop_weight

    def forward(self, batch: TranslationBatch, weight: float = 1.0) -> dict[str, Tensor]:
        """The loss, times the `weight` of a part of a batch."""
        if self.rdrop_weight:
            batch = batch.twice()
        logits = self.model.teacher_forced_logits(batch.source, batch.layout, batch.target).float()
        loss = F.cross_entropy(
            logits.flatten(0, 1),
            batch.target.flatten(),
            ignore_index=self.padding,
            label_smoothing=self.label_smoothing,
        )
        if self.rdrop_weight:
            present = batch.target[: len(batch.target) // 2] != self.padding
            first, second = (half.log_softmax(-1) for half in logits.chunk(2))
            # The mean of the KL divergences in both directions.
            divergence = ((first.exp() - second.exp()) * (first - second)).sum(-1) / 2
            loss = loss + self.rdrop_weight * (divergence * present).sum() / present.sum()
        return {"loss": loss * weight}
