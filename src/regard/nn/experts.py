"""Mixture of experts: a feed-forward network of several, of which each token uses a few (Shazeer et al. 2017).

An expert is a `FeedForward`, so copies in bf16 and int8 convert it like any other; the router keeps its precision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import init

from regard.errors import InputError
from regard.nn.block import FeedForward, LayerConfig


class Gate(nn.Module):
    """A linear layer without a bias that copies for inference leave as it is: a rounded score picks another expert."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, width))
        init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x.to(self.weight.dtype), self.weight)


class Experts(nn.Module):
    """The sum of the outputs of the `top` experts with the highest router scores, weighted with their probabilities.

    `normalize` makes the weights sum to 1. Every token also passes through the `shared` expert, if there is one, whose
    output is multiplied by a gate. The work depends on the values of x, so that no graph can record it.
    """

    def __init__(
        self, layer: LayerConfig, *, count: int, top: int, normalize: bool, shared: LayerConfig | None = None
    ) -> None:
        super().__init__()
        if not 1 <= top <= count:
            raise InputError(f"a token cannot use {top} of {count} experts")
        self.top, self.normalize = top, normalize
        self.router = Gate(layer.width, count)
        self.experts = nn.ModuleList(FeedForward(layer) for _ in range(count))
        self.shared = None if shared is None else FeedForward(shared)
        self.shared_gate = None if shared is None else Gate(layer.width, 1)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen = self.router(tokens).float().softmax(-1).topk(self.top, dim=-1)
        if self.normalize:
            weights = weights / weights.sum(-1, keepdim=True)
        result = torch.zeros_like(tokens)
        # In training every expert takes part, so that each has a gradient on each device.
        used = range(len(self.experts)) if self.training else chosen.unique().tolist()
        for number in used:
            rows, ranks = torch.where(chosen == number)
            update = self.experts[number](tokens[rows]) * weights[rows, ranks, None]
            result = result.index_add(0, rows, update.to(result.dtype))
        if self.shared is not None and self.shared_gate is not None:
            result = result + (torch.sigmoid(self.shared_gate(tokens)) * self.shared(tokens)).to(result.dtype)
        return result.view(x.shape)


@dataclass(frozen=True)
class ExpertsConfig:
    """The fields of a model's configuration that describe its experts.

    Layers in `mlp_only_layers`, and those that are not every `decoder_sparse_step`-th one, have none.
    """

    num_experts: int = 8
    num_experts_per_tok: int = 2
    norm_topk_prob: bool = True
    moe_intermediate_size: int | None = None  # None: intermediate_size
    shared_expert_intermediate_size: int | None = None  # None: no shared expert
    decoder_sparse_step: int = 1
    mlp_only_layers: tuple[int, ...] = ()

    def new_ffn(self, layer: LayerConfig, number: int) -> Experts | None:
        """Return the experts of a layer, counted from 0; None if it has none."""
        if number in self.mlp_only_layers or (number + 1) % self.decoder_sparse_step:
            return None
        shared = self.shared_expert_intermediate_size
        return Experts(
            replace(layer, ffn=self.moe_intermediate_size or layer.ffn),
            count=self.num_experts,
            top=self.num_experts_per_tok,
            normalize=self.norm_topk_prob,
            shared=None if shared is None else replace(layer, ffn=shared),
        )
