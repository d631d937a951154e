"""Positional encodings: learned vectors, sinusoids and T5's relative position bias."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from regard.errors import check_choice

Arrangement = Literal["interleaved", "halves"]


def sinusoids(positions: Tensor, width: int, *, arrangement: Arrangement = "interleaved") -> Tensor:
    """Return p(t)[2k] = sin(w_k t), p(t)[2k+1] = cos(w_k t) with w_k = 10000^(-2k/width), k from 0.

    "halves" puts all sines before all cosines: the same values, permuted.
    """
    if width % 2:
        raise ValueError(f"expected an even width for sinusoids, got {width}")
    check_choice("arrangement", arrangement, get_args(Arrangement))
    frequencies = torch.exp(torch.arange(0, width, 2, device=positions.device).double() * (-math.log(10000.0) / width))
    angles = positions[..., None] * frequencies
    if arrangement == "halves":
        return torch.cat([angles.sin(), angles.cos()], dim=-1).float()
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()


class SinusoidalPositions(nn.Module):
    """Sinusoids for any position, without parameters or a maximum length."""

    def __init__(self, width: int, *, arrangement: Arrangement = "interleaved") -> None:
        super().__init__()
        self.width, self.arrangement = width, arrangement

    def forward(self, positions: Tensor) -> Tensor:
        return sinusoids(positions, self.width, arrangement=self.arrangement)


class LearnedPositions(nn.Embedding):
    """A learned vector per position. The first `offset` rows are unused (two in RoBERTa)."""

    def __init__(self, count: int, width: int, *, offset: int = 0) -> None:
        super().__init__(count + offset, width)
        self.count, self.offset = count, offset

    def forward(self, positions: Tensor) -> Tensor:
        return super().forward(positions + self.offset)


class RelativePositionBias(nn.Module):
    """T5's relative position bias: a learned scalar per head and distance bucket, added to the scores of every layer.

    Small distances have a bucket each; larger ones share buckets that grow logarithmically up to `max_distance`.
    """

    def __init__(self, heads: int, *, buckets: int = 32, max_distance: int = 128, causal: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, heads)
        self.buckets, self.max_distance, self.causal = buckets, max_distance, causal

    def forward(self, queries: int, keys: int) -> Tensor:
        """Return the bias (1, H, T, S) of the last `queries` of `keys` tokens."""
        device = self.table.weight.device
        query = torch.arange(keys - queries, keys, device=device)
        distance = torch.arange(keys, device=device) - query[:, None]
        bias: Tensor = self.table(self.bucket(distance))
        return bias.permute(2, 0, 1)[None]

    def bucket(self, distance: Tensor) -> Tensor:
        """Return the bucket of a signed distance (key minus query)."""
        if self.causal:
            buckets, side = self.buckets, torch.zeros_like(distance)
            distance = (-distance).clamp(min=0)
        else:
            buckets = self.buckets // 2
            side = (distance > 0) * buckets
            distance = distance.abs()
        exact = buckets // 2
        ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
        return side + torch.where(distance < exact, distance, far)
