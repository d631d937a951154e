"""ELMo's scalar mix: a learned weighted sum of layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class ScalarMix(nn.Module):
    """gamma * sum_j softmax(s)_j h_j, with a learned weight s per layer and a learned scale gamma."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.s = nn.Parameter(torch.zeros(count))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        if len(states) != len(self.s):
            raise ValueError(f"expected {len(self.s)} layers, got {len(states)}")
        mixed: Tensor = self.gamma * torch.tensordot(self.s.softmax(0), torch.stack(list(states)), dims=1)
        return mixed
