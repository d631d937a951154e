"""A Transformer layer: self-attention, optional cross-attention and a feed-forward network, each with a residual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import InputError, check_choice
from regard.nn.attention import Attention, FusedProjection, SeparateProjections, SoftcapScore
from regard.nn.kernels import HALF, fused_add_norm, fused_linear_gelu
from regard.nn.layer import Layer
from regard.nn.masks import Context, Layout
from regard.nn.training import Dropout


def quick_gelu(x: Tensor) -> Tensor:
    """The approximation of GELU that CLIP was trained with."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "quick-gelu": quick_gelu,
    "silu": F.silu,
}
TRANSFORMERS_ACTIVATIONS = {  # transformers' names; of several for one function the first is written
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "quick_gelu": "quick-gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


CONFIG_FIELDS = {  # of a layer: of the models' configurations
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "key_value_heads": "num_key_value_heads",
    "head_width": "head_dim",
    "ffn": "intermediate_size",
    "norm_first": "norm_first",
    "norm": "norm",
    "eps": "layer_norm_eps",
    "activation": "hidden_act",
    "gated": "is_gated_act",
    "query_key_norm": "query_key_norm",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "ffn_dropout": "activation_dropout",
}


class OffsetRMSNorm(nn.Module):
    """An RMS norm whose gain is 1 + weight (Gemma), so that weights of 0 leave the normalized values as they are."""

    def __init__(self, width: int, *, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float() if x.dtype in HALF else x
        return F.rms_norm(wide, self.weight.shape, 1 + self.weight.to(wide.dtype), self.eps).to(x.dtype)


class JoinedRMSNorm(nn.Module):
    """An RMS norm of all heads (..., H, D) of the queries or keys together (OLMo 2)."""

    def __init__(self, width: int, *, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.flatten(-2), self.weight.shape, self.weight, self.eps).view(x.shape)


class Scale(nn.Module):
    """Multiplies by a constant: in place of a norm after each branch (Granite)."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


@dataclass(frozen=True)
class LayerConfig:
    """The settings in which the layers of the families differ."""

    width: int
    heads: int
    ffn: int
    norm_first: bool = False
    post_norm: bool = False  # normalize the output of each branch, too, before it is added
    norm: Literal["layer", "rms", "offset-rms"] = "layer"
    eps: float = 1e-12
    activation: str = "gelu"
    gated: bool = False  # multiply the activation of the feed-forward network by a second projection
    bias: bool = True  # of all linear layers, unless one of the next three differs
    qkv_bias: bool | None = None  # of the projections to queries, keys and values
    attention_output_bias: bool | None = None
    ffn_inner_bias: bool | None = None  # of the first layer of the feed-forward network
    norm_bias: bool = True  # of a layer norm
    scale: float | None = None  # of the attention scores; None: 1/sqrt(head width)
    softcap: float | None = None  # limit of the attention scores
    head_width: int | None = None  # None: width / heads
    key_value_heads: int | None = None  # grouped-query attention: heads of keys and values; None: as many as heads
    query_key_norm: bool = False  # RMS norm of each head of the queries and keys
    causal: bool = False
    window: int | None = None  # maximum distance between a query and its keys; None: no limit
    cross: bool = False  # add cross-attention to a memory
    dropout: float = 0.0
    attention_dropout: float = 0.0
    ffn_dropout: float = 0.0  # inside the feed-forward network

    @classmethod
    def from_model_config(cls, config: Any, **settings: Any) -> LayerConfig:
        """The layers of a model with the usual fields in its configuration; `settings` are those of the family."""
        usual = {ours: getattr(config, name) for ours, name in CONFIG_FIELDS.items() if hasattr(config, name)}
        return cls(**{**usual, **settings})

    def __post_init__(self) -> None:
        check_choice("norm", self.norm, ("layer", "rms", "offset-rms"))
        check_choice("activation", self.activation, ACTIVATIONS)
        if self.head_width is None and self.width % self.heads:
            raise InputError(f"{self.heads} heads do not divide a width of {self.width}")
        if self.key_value_heads is not None and (self.key_value_heads < 1 or self.heads % self.key_value_heads):
            raise InputError(f"{self.key_value_heads} heads of keys and values do not divide {self.heads} heads")
        if self.window is not None and self.window < 0:
            raise InputError(f"expected an attention window of at least 0, got {self.window}")

    def new_norm(self) -> nn.Module:
        if self.norm == "layer":
            return nn.LayerNorm(self.width, eps=self.eps, bias=self.norm_bias)
        return self._new_rms_norm(self.width)

    def _new_rms_norm(self, width: int) -> nn.Module:
        return (OffsetRMSNorm if self.norm == "offset-rms" else nn.RMSNorm)(width, eps=self.eps)

    def new_attention(self, *, cross: bool = False, positions: nn.Module | None = None) -> Attention:
        head_width = self.head_width or self.width // self.heads
        inner, key_inner = self.heads * head_width, (self.key_value_heads or self.heads) * head_width
        bias = self.bias if self.qkv_bias is None else self.qkv_bias
        output_bias = self.bias if self.attention_output_bias is None else self.attention_output_bias
        linear = partial(nn.Linear, self.width, bias=bias)
        project = (
            SeparateProjections(linear(inner), linear(key_inner), linear(key_inner))
            if cross
            else FusedProjection(self.width, inner, key_inner=key_inner, bias=bias)
        )
        scale = 1 / sqrt(head_width) if self.scale is None else self.scale
        return Attention(
            project,
            nn.Linear(inner, self.width, bias=output_bias),
            heads=self.heads,
            scale=self.scale if self.softcap is None else 1.0,
            score=None if self.softcap is None else SoftcapScore(self.softcap, scale),
            positions=positions,
            query_norm=self._new_rms_norm(head_width) if self.query_key_norm else None,
            key_norm=self._new_rms_norm(head_width) if self.query_key_norm else None,
            causal=self.causal and not cross,
            window=None if cross else self.window,
            dropout=self.attention_dropout,
        )


class FeedForward(nn.Module):
    """A position-wise feed-forward network: two linear layers with an activation; gated: act(a x) * (b x).

    `inner` of a gated network is [a; b]: one product is faster than two.
    """

    def __init__(self, layer: LayerConfig) -> None:
        super().__init__()
        self.gated = layer.gated
        bias = layer.bias if layer.ffn_inner_bias is None else layer.ffn_inner_bias
        self.inner = nn.Linear(layer.width, 2 * layer.ffn if layer.gated else layer.ffn, bias=bias)
        self.outer = nn.Linear(layer.ffn, layer.width, bias=layer.bias)
        self.activation = ACTIVATIONS[layer.activation]
        self.dropout = Dropout(layer.ffn_dropout)

    def forward(self, x: Tensor) -> Tensor:
        fused = fused_linear_gelu(x, self.inner) if self.activation is F.gelu and not self.gated else None
        result: Tensor = self.outer(self.dropout(self.activate(self.inner(x)) if fused is None else fused))
        return result

    def activate(self, inner: Tensor) -> Tensor:
        """Apply the activation and the gate to the output of the first layer."""
        if not self.gated:
            return self.activation(inner)
        activated, gate = inner.chunk(2, dim=-1)
        return self.activation(activated) * gate


class Residual(nn.Module):
    """norm(x + branch(x)), or x + branch(norm(x)) if the norm comes first; `post_norm` normalizes the branch's output.

    Under autocast, norms compute in float32 and return the dtype of the branch, which halves the memory traffic.
    """

    def __init__(self, layer: LayerConfig) -> None:
        super().__init__()
        self.norm = layer.new_norm()
        self.post_norm = layer.new_norm() if layer.post_norm else None
        self.first = layer.norm_first
        self.dropout = Dropout(layer.dropout)

    def forward(self, x: Tensor, branch: Callable[..., Tensor], context: Context | None = None) -> Tensor:
        """Add `branch(x)`, or `branch(x, context)` if there is a context, at its `output_positions`."""
        arguments = () if context is None else (context,)
        update: Tensor = branch(self.norm(x) if self.first else x, *arguments)
        update = self.dropout(update if self.post_norm is None else self.post_norm(update))
        x = x if context is None else context.select(x)
        if self.first:
            return x + update
        fused = fused_add_norm(x, update, self.norm)
        if fused is not None:
            return fused
        result: Tensor = self.norm(x + update)
        return result.to(update.dtype)


class TransformerLayer(Layer):
    """What the layers built from a `LayerConfig` have in common: self-attention and a feed-forward network."""

    attention: Attention
    ffn: FeedForward
    has_cross_attention: bool = False

    def __init__(self, layer: LayerConfig) -> None:
        super().__init__()
        self.width = layer.width

    @property
    def shape(self) -> str:
        return f"width {self.width}, {self.attention.heads} heads"


class ParallelBlock(TransformerLayer):
    """A layer whose attention and feed-forward network read the same input: x + attention + ffn.

    It is normalized once (GPT-J), or with `separate_norms` for each of them (GPT-NeoX).
    """

    def __init__(self, layer: LayerConfig, *, positions: nn.Module | None = None, separate_norms: bool = False) -> None:
        super().__init__(layer)
        self.norm = layer.new_norm()
        self.ffn_norm = layer.new_norm() if separate_norms else None
        self.attention, self.ffn = layer.new_attention(positions=positions), FeedForward(layer)
        self.dropout = Dropout(layer.dropout)

    def forward(self, x: Tensor, context: Context | Layout) -> Tensor:
        """Return the output for all positions, or (M, W) for the `output_positions` of the context."""
        context = Context.of(context)
        normed = self.norm(x)
        attended = self.dropout(self.attention(normed, context.for_self_attention()))
        fed = context.select(normed) if self.ffn_norm is None else self.ffn_norm(context.select(x))
        result: Tensor = context.select(x) + attended + self.dropout(self.ffn(fed))
        return result


class Block(TransformerLayer):
    """Self-attention, optional cross-attention and a feed-forward network, each with a residual.

    `positions` encodes positions in the self-attention; `ffn` may be another feed-forward network, such as `Experts`.
    """

    def __init__(self, layer: LayerConfig, *, positions: nn.Module | None = None, ffn: nn.Module | None = None) -> None:
        super().__init__(layer)
        self.attention, self.attention_residual = layer.new_attention(positions=positions), Residual(layer)
        if layer.cross:
            self.cross, self.cross_residual = layer.new_attention(cross=True), Residual(layer)
        self.ffn: Any = ffn or FeedForward(layer)
        self.ffn_residual = Residual(layer)
        self.has_cross_attention = layer.cross

    def forward(self, x: Tensor, context: Context | Layout) -> Tensor:
        """Return the output for all positions, or (M, W) for the `output_positions` of the context."""
        context = Context.of(context)
        if context.output_positions is not None and self.has_cross_attention:
            raise ValueError("a layer with cross-attention computes all positions; leave `output_positions` out")
        x = self.attention_residual(x, self.attention, context.for_self_attention())
        if self.has_cross_attention:
            x = self.cross_residual(x, self.cross, context.for_cross_attention())
        return self.ffn_residual(x, self.ffn)  # type: ignore[no-any-return]
