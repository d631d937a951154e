"""How weights begin before they are trained."""

from __future__ import annotations

import math

import torch
from torch import nn

__all__ = ["normal_init", "scaled_init"]


def normal_init(model: nn.Module, std: float = 0.02) -> None:
    """BERT's and GPT-2's start: normal weights, zero biases, norms at one."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d | nn.Embedding):
                module.weight.normal_(0.0, std)
            if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
                module.bias.zero_()


def scaled_init(layers: nn.ModuleList, std: float = 0.02) -> None:
    """Each layer adds twice to what passes through: begin with so little that the sum of all keeps its size.

    GPT-2 starts so. A BERT, whose norms come after the sums, then learns from the first steps on, where it would
    otherwise stand still for hundreds.
    """
    with torch.no_grad():
        for name, parameter in layers.named_parameters():
            if name.endswith((".attention.output.weight", ".ffn.outer.weight")):
                parameter.normal_(0.0, std / math.sqrt(2 * len(layers)))
