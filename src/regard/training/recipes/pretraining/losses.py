"""Cross-entropy over a vocabulary, for targets of which some are ignored."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.masking import IGNORE_INDEX

ALIGNED = 64  # GPUs multiply matrices faster if their sides are multiples of this
MAX_ELEMENTS = 2**31 - 1  # of a tensor: kernels index with 32 bits


def token_loss(vectors: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """Mean cross-entropy over the vocabulary, which is padded on a GPU with entries of probability 0.

    Ignored targets do not count; 0 if all are ignored.
    """
    more = -len(weight) % ALIGNED
    if vectors.is_cuda and more:
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        weight, bias = F.pad(weight, (0, 0, 0, more)), F.pad(bias, (0, more), value=-1e4)
    parts = zip(split_rows(vectors, len(weight)), split_rows(targets, len(weight)), strict=True)
    sums = [_summed_loss(F.linear(part, weight, bias), words) for part, words in parts]
    return torch.stack(sums).sum() / _target_count(targets)


def split_rows(rows: Tensor, vocabulary: int) -> tuple[Tensor, ...]:
    """The rows in parts whose logits over the vocabulary a kernel can index."""
    return torch.split(rows, -(-len(rows) // -(-len(rows) * vocabulary // MAX_ELEMENTS)))


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over targets that are not ignored; 0 if all are ignored."""
    return _summed_loss(logits, targets) / _target_count(targets)


def _summed_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), targets, ignore_index=IGNORE_INDEX, reduction="sum")


def _target_count(targets: Tensor) -> Tensor:
    return (targets != IGNORE_INDEX).sum().clamp(min=1)
