"""How weights begin before they are trained."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["normal"]


def normal(model: nn.Module, std: float = 0.02) -> None:
    """BERT's and GPT-2's start: normal weights, zero biases, norms at one."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d | nn.Embedding):
                module.weight.normal_(0.0, std)
            if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
                module.bias.zero_()
