"""One decoding step of a whole stack as straight-line code, with few calls, and beams that share their source.

Buys most on a CPU, where the modules' own calls are a large part of a small step. The result equals the stack's up to
rounding. Hooks and recordings do not see the modules, so `supports_fused_step` says when it may be used.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn import recording
from regard.nn.attention import HALF, Attention, FusedProjection, SeparateProjections
from regard.nn.block import Block, FeedForward, Residual
from regard.nn.cache import DecoderState, KVCache, LayerCache
from regard.nn.dropout import Dropout
from regard.nn.positions import RelativePositionBias
from regard.nn.stack import Stack

__all__ = ["FusedStep", "supports_fused_step"]

Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]
Map = Callable[[Tensor], Tensor]

_KNOWN = {
    *(
        Stack,
        Block,
        Attention,
        FusedProjection,
        SeparateProjections,
        FeedForward,
        Residual,
        RelativePositionBias,
        Dropout,
    ),
    *(nn.ModuleList, nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Embedding, nn.Identity),
}


def supports_fused_step(stack: Stack) -> bool:
    """Whether nobody watches or changes what the modules do: no gradients, recordings, hooks, autocast or new parts."""
    watched = torch.is_grad_enabled() or recording.is_recording()
    watched = watched or any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))
    return not watched and not any(
        type(part) not in _KNOWN or part.training or part._forward_hooks or part._forward_pre_hooks
        for part in stack.modules()
    )


class FusedStep:
    """A stack's step without its modules; `linear` multiplies. Weights are looked up once: do not replace them."""

    def __init__(self, stack: Stack, linear: Linear = F.linear) -> None:
        self.layers = [_LayerStep(block, linear) for block in stack.layers if isinstance(block, Block)]
        self.norm = _norm(stack.norm)
        self.relative = stack.relative

    def __call__(self, x: Tensor, state: DecoderState) -> Tensor:
        """Vectors (B, W) of the tokens that `state` has room for, to the last hidden state (B, W)."""
        bias = None if self.relative is None else self.relative(1, state.mask.shape[1]).to(x.dtype)
        if not state.is_full:
            shut = torch.zeros(state.mask.shape, dtype=x.dtype, device=x.device).masked_fill_(~state.mask, -torch.inf)
            bias = shut[:, None, None] if bias is None else bias + shut[:, None, None]
        for layer, cache in zip(self.layers, state.cache.layers, strict=True):
            x = layer(x, cache, state, bias)
        return self.norm(x)


class _LayerStep:
    def __init__(self, block: Block, linear: Linear) -> None:
        self.first = block.attended.first
        self.attended, self.fed = _norm(block.attended.norm), _norm(block.fed.norm)
        own = block.attention
        self.project, self.output = _map(own.project, linear), _map(own.output, linear)
        self.heads, self.scale = own.heads, own.scale
        self.cross = _Cross(block, linear) if block.has_cross_attention else None
        self.inner, self.outer = _map(block.ffn.inner, linear), _map(block.ffn.outer, linear)
        self.gate = None if block.ffn.gate is None else _map(block.ffn.gate, linear)
        self.activation = block.ffn.activation

    def __call__(self, x: Tensor, cache: LayerCache, state: DecoderState, bias: Tensor | None) -> Tensor:
        if self.first:
            x = x + self._look(self.attended(x), cache.self_attention, bias)
            if self.cross is not None:
                x = x + self.cross(self.cross.norm(x), cache.cross_attention, state)
            return x + self._feed(self.fed(x))
        x = self.attended(x + self._look(x, cache.self_attention, bias))
        if self.cross is not None:
            x = self.cross.norm(x + self.cross(x, cache.cross_attention, state))
        return self.fed(x + self._feed(x))

    def _look(self, x: Tensor, pairs: KVCache, bias: Tensor | None) -> Tensor:
        rows = len(x)
        query, key, value = self.project(x).view(rows, 3, self.heads, 1, -1).unbind(1)
        key, value = pairs.extend(key, value)
        scale = query.shape[-1] ** -0.5 if self.scale is None else self.scale
        if x.dtype in HALF or rows == 1:
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale)
        else:  # with one query in each of several rows, two products are quicker than the fused kernel
            flat = (query * scale).view(-1, 1, query.shape[-1])
            scores = torch.bmm(flat, key.flatten(0, 1).transpose(1, 2)).view(rows, self.heads, 1, -1)
            weights = (scores if bias is None else scores + bias).softmax(-1)
            mixed = torch.bmm(weights.flatten(0, 1), value.flatten(0, 1))
        return self.output(mixed.reshape(rows, -1))

    def _feed(self, x: Tensor) -> Tensor:
        inner = self.activation(self.inner(x))
        return self.outer(inner if self.gate is None else inner * self.gate(x))


class _Cross:
    """Rows of one source are queries of one look, so its keys and values are there once."""

    def __init__(self, block: Block, linear: Linear) -> None:
        cross = block.cross
        assert isinstance(cross.project, SeparateProjections)
        self.norm = _norm(block.crossed.norm)
        self.query, self.output = _map(cross.project.query, linear), _map(cross.output, linear)
        self.heads, self.scale = cross.heads, cross.scale

    def __call__(self, x: Tensor, pairs: KVCache, state: DecoderState) -> Tensor:
        assert pairs.key is not None and pairs.value is not None, "the source is read before a step is taken"
        query = self.query(x).view(-1, state.rows_per_source, self.heads, pairs.key.shape[-1]).transpose(1, 2)
        keep = None if state.memory_layout is None else state.memory_layout.mask
        mask = None if keep is None else keep[:, None, None]
        mixed = F.scaled_dot_product_attention(query, pairs.key, pairs.value, attn_mask=mask, scale=self.scale)
        return self.output(mixed.transpose(1, 2).reshape(len(x), -1))


def _map(module: nn.Module, linear: Linear) -> Map:
    assert isinstance(module, nn.Linear)
    weight, bias = module.weight, module.bias
    return lambda x: linear(x, weight, bias)


def _norm(module: nn.Module) -> Map:
    if isinstance(module, nn.LayerNorm):
        shape, weight, bias, eps = list(module.normalized_shape), module.weight, module.bias, module.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    if isinstance(module, nn.RMSNorm):
        size, scale, tiny = list(module.normalized_shape), module.weight, module.eps
        return lambda x: F.rms_norm(x, size, scale, tiny)
    return lambda x: x
