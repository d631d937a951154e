"""A learned weighted sum of layers: ELMo's vector for a task."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["ScalarMix"]


class ScalarMix(nn.Module):
    """gamma * sum_j softmax(s)_j h_j, with one s per layer and one gamma, learned by the task."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.s = nn.Parameter(torch.zeros(count))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        if len(states) != len(self.s):
            raise ValueError(f"this mix weighs {len(self.s)} layers, got {len(states)}")
        mixed: Tensor = self.gamma * torch.tensordot(self.s.softmax(0), torch.stack(list(states)), dims=1)
        return mixed
