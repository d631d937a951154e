"""One vector per sequence from the vectors of its tokens: of a packed, a padded or a compiled batch."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.nn.kernels import fused_mean_pool
from regard.nn.masks import Layout, Packed, first_tokens


def pool(hidden: Tensor, layout: Layout, pooling: str) -> Tensor:
    """One vector per sequence of a packed batch, (B, W) in float32: of the first token, the mean or the maximum."""
    assert isinstance(layout, Packed)
    if pooling == "cls":
        return first_tokens(hidden, layout).float()
    fused = fused_mean_pool(hidden, layout) if pooling == "mean" else None
    if fused is not None:
        return fused
    return torch.segment_reduce(hidden.float(), pooling, lengths=layout.starts.diff().long(), axis=0, unsafe=True)


def pool_padded(hidden: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """The vectors (B, W) of hidden states (B, T, W) with a mask (B, T, 1)."""
    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "max":
        return hidden.masked_fill(~mask, float("-inf")).amax(1)
    return hidden.masked_fill(~mask, 0.0).sum(1) / mask.sum(1).clamp(min=1)


def pool_scattered(hidden: Tensor, owner: Tensor, lengths: Tensor, pooling: str = "mean") -> Tensor:
    """One vector per text, (texts, W) in float32, of tokens (N, W) in any order of texts; `owner` (N,) is their text.

    Shapes are fixed for compiled code: tokens of padding belong to the text after the last.
    """
    texts = len(lengths)
    total = torch.zeros(texts + 1, hidden.shape[-1], device=hidden.device)  # the last row collects the padding
    if pooling == "max":
        return total.index_reduce(0, owner, hidden.float(), "amax", include_self=False)[:texts]
    if pooling == "cls":
        first = torch.cat([owner.new_ones(1, dtype=torch.bool), owner.diff() != 0])
        return total.index_copy(0, owner[first], hidden[first].float())[:texts]
    return total.index_add(0, owner, hidden.float())[:texts] / lengths[:, None]
