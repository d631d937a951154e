"""One vector per sequence from the vectors of its tokens: of a packed, a padded or a compiled batch."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.nn.kernels import fused_mean_pool
from regard.nn.masks import Layout, Packed, first_token_indices

# The names of sentence-transformers; "cls+mean" is both, side by side.
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


def pool(hidden: Tensor, layout: Layout, pooling: str, *, skip: int = 0) -> Tensor:
    """One vector per sequence of a packed batch, (B, W) in float32, of all its tokens but the first `skip`.

    A sequence must have a token after these. No shape depends on the lengths, so that a CUDA graph can record it.
    """
    assert isinstance(layout, Packed)
    if "+" in pooling:
        return torch.cat([pool(hidden, layout, one, skip=skip) for one in pooling.split("+")], dim=-1)
    if pooling == "lasttoken":
        return hidden[(layout.starts[1:].long() - 1).clamp(min=0)].float()
    if pooling == "cls":
        first = first_token_indices(hidden, layout) + skip
        return hidden[first.clamp(max=len(hidden) - 1)].float()
    if not skip:
        fused = fused_mean_pool(hidden, layout) if pooling == "mean" else None
        if fused is not None:
            return fused
        if pooling in ("mean", "max"):
            return _segments(hidden.float(), layout, pooling)
    kept = layout.position_ids >= skip
    if pooling == "max":
        return _segments(hidden.float().masked_fill(~kept[:, None], float("-inf")), layout, pooling)
    weights = kept.float() * (layout.position_ids + 1 if pooling == "weightedmean" else 1)
    total = _segments(hidden.float() * weights[:, None], layout, "sum")
    weight = _segments(weights[:, None], layout, "sum").clamp(min=1e-9)
    return total / (weight.sqrt() if pooling == "mean_sqrt_len_tokens" else weight)


def _segments(x: Tensor, layout: Packed, operation: str) -> Tensor:
    return torch.segment_reduce(x, operation, lengths=layout.starts.diff().long(), axis=0, unsafe=True)


def pool_padded(hidden: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """The vectors (B, W) of hidden states (B, T, W) with a mask (B, T, 1)."""
    if "+" in pooling:
        return torch.cat([pool_padded(hidden, mask, one) for one in pooling.split("+")], dim=-1)
    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "max":
        return hidden.masked_fill(~mask, float("-inf")).amax(1)
    hidden, numbers = hidden.masked_fill(~mask, 0.0), mask.int().cumsum(1)
    if pooling == "lasttoken":
        return (hidden * (mask & (numbers == numbers[:, -1:]))).sum(1)
    weights = mask * (numbers if pooling == "weightedmean" else 1)
    weight = weights.sum(1).clamp(min=1)
    return (hidden * weights).sum(1) / (weight.sqrt() if pooling == "mean_sqrt_len_tokens" else weight)


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
        return total.index_add(0, owner, hidden.float() * first[:, None])[:texts]
    return total.index_add(0, owner, hidden.float())[:texts] / lengths[:, None]
