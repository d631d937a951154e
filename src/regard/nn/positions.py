"""Where a token stands: learned vectors, sinusoids, or T5's bias on the distance between two tokens."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from regard.errors import check_choice

__all__ = ["LearnedPositions", "RelativePositionBias", "SinusoidalPositions", "sinusoids"]

Arrangement = Literal["interleaved", "halves"]


def sinusoids(positions: Tensor, width: int, *, arrangement: Arrangement = "interleaved") -> Tensor:
    """p(t)[2k] = sin(w_k t), p(t)[2k+1] = cos(w_k t) with w_k = 10000^(-2k/width), k from 0.

    "halves" puts all sines before all cosines: the same numbers, permuted.
    """
    if width % 2:
        raise ValueError(f"sinusoids come in pairs: width must be even, got {width}")
    check_choice("arrangement", arrangement, get_args(Arrangement))
    rates = torch.exp(torch.arange(0, width, 2, device=positions.device).double() * (-math.log(10000.0) / width))
    angles = positions[..., None] * rates
    if arrangement == "halves":
        return torch.cat([angles.sin(), angles.cos()], dim=-1).float()
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()


class SinusoidalPositions(nn.Module):
    """Sinusoids for any position: nothing is learned, no length is too long."""

    def __init__(self, width: int, *, arrangement: Arrangement = "interleaved") -> None:
        super().__init__()
        self.width, self.arrangement = width, arrangement

    def forward(self, positions: Tensor) -> Tensor:
        return sinusoids(positions, self.width, arrangement=self.arrangement)


class LearnedPositions(nn.Embedding):
    """One learned vector a position. `offset` rows at the start are unused (RoBERTa keeps two)."""

    def __init__(self, count: int, width: int, *, offset: int = 0) -> None:
        super().__init__(count + offset, width)
        self.count, self.offset = count, offset

    def forward(self, positions: Tensor) -> Tensor:
        return super().forward(positions + self.offset)


class RelativePositionBias(nn.Module):
    """T5: a learned number per head and bucket of distance, added to the scores of every layer.

    Small distances have a bucket each, larger ones share buckets that grow with the logarithm up to `reach`.
    """

    def __init__(self, heads: int, *, buckets: int = 32, max_distance: int = 128, causal: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, heads)
        self.buckets, self.max_distance, self.causal = buckets, max_distance, causal

    def forward(self, queries: int, keys: int) -> Tensor:
        """The bias (1, H, T, S) for `queries` tokens at the end of `keys` tokens."""
        device = self.table.weight.device
        query = torch.arange(keys - queries, keys, device=device)
        distance = torch.arange(keys, device=device) - query[:, None]
        bias: Tensor = self.table(self.bucket(distance))
        return bias.permute(2, 0, 1)[None]

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of a signed distance (key minus query)."""
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
