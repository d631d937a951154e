"""One layer of any Transformer: attention, perhaps cross-attention, a feed-forward network, each with a residual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import InputError, check_choice
from regard.nn.attention import Attention, FusedProjection, SeparateProjections
from regard.nn.context import Context
from regard.nn.dropout import Dropout
from regard.nn.masks import Layout, select_rows

__all__ = ["ACTIVATIONS", "Block", "FeedForward", "LayerConfig", "Residual"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
}


@dataclass(frozen=True)
class LayerConfig:
    """The scalars in which the families' layers differ."""

    width: int
    heads: int
    ffn: int
    norm_first: bool = False
    norm: Literal["layer", "rms"] = "layer"
    eps: float = 1e-12
    activation: str = "gelu"
    gated: bool = False  # the feed-forward network multiplies its activation with a second projection
    bias: bool = True
    scale: float | None = None  # of the attention scores; None is 1/sqrt(head width)
    head_width: int | None = None  # None is width / heads
    causal: bool = False
    cross: bool = False  # looks at a memory too
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
    """Two linear maps with an activation between, the same at every position; gated: act(a x) * (b x)."""

    def __init__(self, layer: LayerConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(layer.width, layer.ffn, bias=layer.bias)
        self.gate = nn.Linear(layer.width, layer.ffn, bias=layer.bias) if layer.gated else None
        self.outer = nn.Linear(layer.ffn, layer.width, bias=layer.bias)
        self.activation = ACTIVATIONS[layer.activation]
        self.dropout = Dropout(layer.ffn_dropout)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.inner(x))
        if self.gate is not None:
            inner = inner * self.gate(x)
        result: Tensor = self.outer(self.dropout(inner))
        return result


class Residual(nn.Module):
    """norm(x + branch(x)), or x + branch(norm(x)) if the norm comes first.

    Under autocast, norms compute in float32 and return the dtype of the branch: half the memory traffic.
    """

    def __init__(self, layer: LayerConfig) -> None:
        super().__init__()
        self.norm = layer.new_norm()
        self.first = layer.norm_first
        self.dropout = Dropout(layer.dropout)

    def forward(self, x: Tensor, branch: Callable[..., Tensor], context: Context | None = None) -> Tensor:
        """With a context, `branch(x, context)`; only its `rows` are computed if it has any."""
        given = () if context is None else (context,)
        more: Tensor = self.dropout(branch(self.norm(x) if self.first else x, *given))
        if context is not None and context.rows is not None:
            x = select_rows(x, context.rows)
        if self.first:
            return x + more
        result: Tensor = self.norm(x + more)
        return result.to(more.dtype)


class Block(nn.Module):
    """The layer of the paper's figure 1, built from a `LayerConfig`; `positions` is for its self-attention."""

    def __init__(self, layer: LayerConfig, *, positions: nn.Module | None = None) -> None:
        super().__init__()
        self.attention, self.attended = layer.new_attention(positions=positions), Residual(layer)
        if layer.cross:
            self.cross, self.crossed = layer.new_attention(cross=True), Residual(layer)
        self.ffn, self.fed = FeedForward(layer), Residual(layer)
        self.has_cross_attention = layer.cross

    def forward(self, x: Tensor, context: Context | Layout) -> Tensor:
        """For the `rows` of the context, if given, what follows attention is computed for them alone, (M, W)."""
        context = Context.of(context)
        cache, rows = context.cache, context.rows
        if rows is not None and self.has_cross_attention:
            raise ValueError("a layer with cross-attention computes all rows: leave `rows` out")
        own = Context(context.layout, None, None, context.bias, cache and cache.self_attention, rows, context.start)
        x = self.attended(x, self.attention, own)
        if self.has_cross_attention:
            held = cache and cache.cross_attention
            across = Context(context.layout, context.memory, context.memory_layout, cache=held)
            x = self.crossed(x, self.cross, across)
        return self.fed(x, self.ffn)  # type: ignore[no-any-return]
