"""Dropout: in training, numbers become zero by chance and the others larger, so that their mean stays."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Dropout"]

WORD = 1 << 32


class Dropout(nn.Dropout):
    """As torch's. Compiled for a GPU it draws one seed a call and makes the rest from the numbers' places.

    Drawing a number for each place costs more there than all else that is compiled into the same kernel; and what a
    seed gives again need not be kept for the way back.
    """

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling() and x.is_cuda and self.training and 0 < self.p < 1:
            return hashed(x, self.p)
        return super().forward(x)


def hashed(x: Tensor, p: float) -> Tensor:
    """Dropout by a hash of seed and place: two rounds of shift and multiply, which mix the upper bits well."""
    seed = torch.randint(-WORD // 2, WORD // 2 - 1, (), device=x.device, dtype=torch.int64).to(torch.int32)
    bits = torch.arange(x.numel(), device=x.device, dtype=torch.int32).view(x.shape) ^ seed
    bits = (bits ^ ((bits >> 16) & 0xFFFF)) * 0x7FEB352D
    # The seed once more: places that it alone has put in another order would give the same zeros in another order.
    bits = bits ^ (seed * -0x61C88647)
    bits = (bits ^ ((bits >> 15) & 0x1FFFF)) * -0x7B935975
    return torch.where(bits >= int(p * WORD) - WORD // 2, x * (1 / (1 - p)), 0.0)
