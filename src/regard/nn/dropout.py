"""Dropout with a faster implementation for compiled code on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WORD = 1 << 32


class Dropout(nn.Dropout):
    """`nn.Dropout`. Compiled for a GPU, it draws one seed per call and hashes it with each element's index.

    A random number per element would cost more than everything else that is compiled into the same kernel, and the
    backward pass recomputes the mask from the seed instead of storing it.
    """

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling() and x.is_cuda and self.training and 0 < self.p < 1:
            return hashed_dropout(x, self.p)
        return super().forward(x)


def hashed_dropout(x: Tensor, p: float) -> Tensor:
    """Dropout by a hash of seed and index: two rounds of shift and multiply, which mix the upper bits well."""
    seed = torch.randint(-WORD // 2, WORD // 2 - 1, (), device=x.device, dtype=torch.int64).to(torch.int32)
    bits = torch.arange(x.numel(), device=x.device, dtype=torch.int32).view(x.shape) ^ seed
    bits = (bits ^ ((bits >> 16) & 0xFFFF)) * 0x7FEB352D
    # Mix in the seed again: with one XOR, different seeds would only permute the same mask.
    bits = bits ^ (seed * -0x61C88647)
    bits = (bits ^ ((bits >> 15) & 0x1FFFF)) * -0x7B935975
    return torch.where(bits >= int(p * WORD) - WORD // 2, x * (1 / (1 - p)), 0.0)
