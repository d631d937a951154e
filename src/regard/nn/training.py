"""Initial weights, dropout, and the evaluation mode that turns it off."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

WORD = 1 << 32


@contextmanager
def eval_mode(model: object) -> Iterator[None]:
    """Disable dropout inside the block; restore the mode of each module afterwards. Gradients stay on."""
    training = [module for module in model.modules() if module.training] if isinstance(model, nn.Module) else []
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def evaluation_mode(model: object) -> Iterator[None]:
    """Disable dropout and gradients inside the block; restore the mode of each module afterwards."""
    with eval_mode(model), torch.inference_mode():
        yield


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
