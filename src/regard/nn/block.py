"""A Transformer layer: self-attention, optional cross-attention and a feed-forward network, each with a residual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import InputError, check_choice
from regard.nn.attention import Attention, FusedProjection, SeparateProjections
from regard.nn.kernels import fused_add_norm, fused_linear_gelu
from regard.nn.masks import Context, Layout, select_rows
from regard.nn.training import Dropout


def quick_gelu(x: Tensor) -> Tensor:
    """The approximation of GELU that CLIP was trained with."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "quick-gelu": quick_gelu,
}
TRANSFORMERS_ACTIVATIONS = {  # transformers' names; of several for one function the first is written
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "quick_gelu": "quick-gelu",
    "relu": "relu",
}


@dataclass(frozen=True)
class LayerConfig:
    """The settings in which the layers of the families differ."""

    width: int
    heads: int
    ffn: int
    norm_first: bool = False
    norm: Literal["layer", "rms"] = "layer"
    eps: float = 1e-12
    activation: str = "gelu"
    gated: bool = False  # multiply the activation of the feed-forward network by a second projection
    bias: bool = True
    scale: float | None = None  # of the attention scores; None: 1/sqrt(head width)
    head_width: int | None = None  # None: width / heads
    causal: bool = False
    cross: bool = False  # add cross-attention to a memory
    dropout: float = 0.0
    attention_dropout: float = 0.0
    ffn_dropout: float = 0.0  # inside the feed-forward network

    def __post_init__(self) -> None:
        check_choice("norm", self.norm, ("layer", "rms"))
        check_choice("activation", self.activation, ACTIVATIONS)
        if self.head_width is None and self.width % self.heads:
            raise InputError(f"{self.heads} heads do not divide a width of {self.width}")

    def new_norm(self) -> nn.Module:
        kind: Any = nn.LayerNorm if self.norm == "layer" else nn.RMSNorm
        module: nn.Module = kind(self.width, eps=self.eps)
        return module

    def new_attention(self, *, cross: bool = False, positions: nn.Module | None = None) -> Attention:
        inner = self.heads * (self.head_width or self.width // self.heads)
        linear = partial(nn.Linear, bias=self.bias)
        project = (
            SeparateProjections(linear(self.width, inner), linear(self.width, inner), linear(self.width, inner))
            if cross
            else FusedProjection(self.width, inner, bias=self.bias)
        )
        return Attention(
            project,
            linear(inner, self.width),
            heads=self.heads,
            scale=self.scale,
            positions=positions,
            causal=self.causal and not cross,
            dropout=self.attention_dropout,
        )


class FeedForward(nn.Module):
    """A position-wise feed-forward network: two linear layers with an activation; gated: act(a x) * (b x)."""

    def __init__(self, layer: LayerConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(layer.width, layer.ffn, bias=layer.bias)
        self.gate = nn.Linear(layer.width, layer.ffn, bias=layer.bias) if layer.gated else None
        self.outer = nn.Linear(layer.ffn, layer.width, bias=layer.bias)
        self.activation = ACTIVATIONS[layer.activation]
        self.dropout = Dropout(layer.ffn_dropout)

    def forward(self, x: Tensor) -> Tensor:
        fused = fused_linear_gelu(x, self.inner) if self.activation is F.gelu else None
        inner = self.activation(self.inner(x)) if fused is None else fused
        if self.gate is not None:
            inner = inner * self.gate(x)
        result: Tensor = self.outer(self.dropout(inner))
        return result


class Residual(nn.Module):
    """norm(x + branch(x)), or x + branch(norm(x)) if the norm comes first.

    Under autocast, norms compute in float32 and return the dtype of the branch, which halves the memory traffic.
    """

    def __init__(self, layer: LayerConfig) -> None:
        super().__init__()
        self.norm = layer.new_norm()
        self.first = layer.norm_first
        self.dropout = Dropout(layer.dropout)

    def forward(self, x: Tensor, branch: Callable[..., Tensor], context: Context | None = None) -> Tensor:
        """Add `branch(x)`, or `branch(x, context)` if there is a context, whose `rows` are selected if it has any."""
        arguments = () if context is None else (context,)
        update: Tensor = self.dropout(branch(self.norm(x) if self.first else x, *arguments))
        if context is not None and context.rows is not None:
            x = select_rows(x, context.rows)
        if self.first:
            return x + update
        fused = fused_add_norm(x, update, self.norm)
        if fused is not None:
            return fused
        result: Tensor = self.norm(x + update)
        return result.to(update.dtype)


class Block(nn.Module):
    """A Transformer layer built from a `LayerConfig`; `positions` encodes positions in its self-attention."""

    def __init__(self, layer: LayerConfig, *, positions: nn.Module | None = None) -> None:
        super().__init__()
        self.attention, self.attended = layer.new_attention(positions=positions), Residual(layer)
        if layer.cross:
            self.cross, self.crossed = layer.new_attention(cross=True), Residual(layer)
        self.ffn, self.fed = FeedForward(layer), Residual(layer)
        self.has_cross_attention = layer.cross

    def forward(self, x: Tensor, context: Context | Layout) -> Tensor:
        """Return the output for all positions, or (M, W) for the `rows` of the context."""
        context = Context.of(context)
        cache, rows = context.cache, context.rows
        if rows is not None and self.has_cross_attention:
            raise ValueError("a layer with cross-attention cannot select rows; leave `rows` out")
        own = Context(context.layout, None, None, context.bias, cache and cache.self_attention, rows, context.start)
        x = self.attended(x, self.attention, own)
        if self.has_cross_attention:
            cross_cache = cache and cache.cross_attention
            cross = Context(context.layout, context.memory, context.memory_layout, cache=cross_cache)
            x = self.crossed(x, self.cross, cross)
        return self.fed(x, self.ffn)  # type: ignore[no-any-return]
