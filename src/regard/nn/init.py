"""Weight initialization."""

from __future__ import annotations

import math

import torch
from torch import nn


def normal_init(model: nn.Module, std: float = 0.02) -> None:
    """Initialize as BERT and GPT-2 do: normal weights, zero biases."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d | nn.Embedding):
                module.weight.normal_(0.0, std)
            if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
                module.bias.zero_()


def scaled_init(layers: nn.ModuleList, std: float = 0.02) -> None:
    """Scale the residual projections by 1/sqrt(2 * layers), as GPT-2 does, so that the residual sum keeps its scale.

    A post-norm BERT then learns from the first steps instead of stalling for hundreds of steps.
    """
    with torch.no_grad():
        for name, parameter in layers.named_parameters():
            if name.endswith((".attention.output.weight", ".ffn.outer.weight")):
                parameter.normal_(0.0, std / math.sqrt(2 * len(layers)))
