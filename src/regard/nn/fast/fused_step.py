"""One decoding step of a whole stack without module calls; beams share the keys and values of their source.

Module calls take a large part of a small step on a CPU: with one row of `regard-gpt` on one core, 65 instead of 81 ms
in a single measurement on a busy machine. The result equals that of the stack up to rounding. Hooks and recordings are
bypassed, so check `supports_fused_step` first.
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
from regard.nn.embedding import RelativePositionBias
from regard.nn.stack import Stack
from regard.nn.training import Dropout

Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]
Function = Callable[[Tensor], Tensor]

_SUPPORTED = {
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
    """Whether a fused step is equivalent: no gradients, recording, hooks, autocast, training mode or other modules."""
    observed = torch.is_grad_enabled() or recording.is_recording()
    observed = observed or any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))
    fused = all(isinstance(block, Block) and type(block.attention.project) is FusedProjection for block in stack.layers)
    return (
        fused
        and not observed
        and not any(
            type(module) not in _SUPPORTED or module.training or module._forward_hooks or module._forward_pre_hooks
            for module in stack.modules()
        )
    )


class FusedStep:
    """A decoding step of a stack; `linear` computes the products. Weights are looked up once: do not replace them."""

    def __init__(self, stack: Stack, linear: Linear = F.linear) -> None:
        self.layers = [_LayerStep(block, linear) for block in stack.layers if isinstance(block, Block)]
        self.norm = _norm(stack.norm)
        self.relative = stack.relative

    def __call__(self, x: Tensor, state: DecoderState) -> Tensor:
        """Map the vectors (B, W) of the tokens that `state` was extended by to the last hidden state (B, W)."""
        bias = None if self.relative is None else self.relative(1, state.mask.shape[1]).to(x.dtype)
        if not state.is_full:
            mask = torch.zeros(state.mask.shape, dtype=x.dtype, device=x.device).masked_fill_(~state.mask, -torch.inf)
            bias = mask[:, None, None] if bias is None else bias + mask[:, None, None]
        for layer, cache in zip(self.layers, state.cache.layers, strict=True):
            x = layer(x, cache, state, bias)
        return self.norm(x)


class _LayerStep:
    def __init__(self, block: Block, linear: Linear) -> None:
        self.first = block.attended.first
        self.attended, self.fed = _norm(block.attended.norm), _norm(block.fed.norm)
        own = block.attention
        self.project, self.output = _linear(own.project, linear), _linear(own.output, linear)
        self.heads, self.scale = own.heads, own.scale
        self.cross = _CrossAttention(block, linear) if block.has_cross_attention else None
        self.inner, self.outer = _linear(block.ffn.inner, linear), _linear(block.ffn.outer, linear)
        self.gate = None if block.ffn.gate is None else _linear(block.ffn.gate, linear)
        self.activation = block.ffn.activation

    def __call__(self, x: Tensor, cache: LayerCache, state: DecoderState, bias: Tensor | None) -> Tensor:
        if self.first:
            x = x + self._attend(self.attended(x), cache.self_attention, bias)
            if self.cross is not None:
                x = x + self.cross(self.cross.norm(x), cache.cross_attention, state)
            return x + self._feed(self.fed(x))
        x = self.attended(x + self._attend(x, cache.self_attention, bias))
        if self.cross is not None:
            x = self.cross.norm(x + self.cross(x, cache.cross_attention, state))
        return self.fed(x + self._feed(x))

    def _attend(self, x: Tensor, cache: KVCache, bias: Tensor | None) -> Tensor:
        rows = len(x)
        query, key, value = self.project(x).view(rows, 3, self.heads, 1, -1).unbind(1)
        key, value = cache.extend(key, value)
        scale = query.shape[-1] ** -0.5 if self.scale is None else self.scale
        if x.dtype in HALF or rows == 1:
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale)
        else:  # for several rows with one query each, two products are faster than the fused kernel
            flat = (query * scale).view(-1, 1, query.shape[-1])
            scores = torch.bmm(flat, key.flatten(0, 1).transpose(1, 2)).view(rows, self.heads, 1, -1)
            weights = (scores if bias is None else scores + bias).softmax(-1)
            mixed = torch.bmm(weights.flatten(0, 1), value.flatten(0, 1))
        return self.output(mixed.reshape(rows, -1))

    def _feed(self, x: Tensor) -> Tensor:
        inner = self.activation(self.inner(x))
        return self.outer(inner if self.gate is None else inner * self.gate(x))


class _CrossAttention:
    """Cross-attention that treats the rows of a source as queries of one call, so its keys and values exist once."""

    def __init__(self, block: Block, linear: Linear) -> None:
        cross = block.cross
        assert isinstance(cross.project, SeparateProjections)
        self.norm = _norm(block.crossed.norm)
        self.query, self.output = _linear(cross.project.query, linear), _linear(cross.output, linear)
        self.heads, self.scale = cross.heads, cross.scale

    def __call__(self, x: Tensor, cache: KVCache, state: DecoderState) -> Tensor:
        assert cache.key is not None and cache.value is not None, "the source must be encoded before the first step"
        query = self.query(x).view(-1, state.rows_per_source, self.heads, cache.key.shape[-1]).transpose(1, 2)
        mask = None if state.memory_layout is None else state.memory_layout.mask
        mask = None if mask is None else mask[:, None, None]
        mixed = F.scaled_dot_product_attention(query, cache.key, cache.value, attn_mask=mask, scale=self.scale)
        return self.output(mixed.transpose(1, 2).reshape(len(x), -1))


def _linear(module: nn.Module, linear: Linear) -> Function:
    assert isinstance(module, nn.Linear)
    weight, bias = module.weight, module.bias
    return lambda x: linear(x, weight, bias)


def _norm(module: nn.Module) -> Function:
    if isinstance(module, nn.LayerNorm):
        shape, weight, bias, eps = list(module.normalized_shape), module.weight, module.bias, module.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    if isinstance(module, nn.RMSNorm):
        size, scale, tiny = list(module.normalized_shape), module.weight, module.eps
        return lambda x: F.rms_norm(x, size, scale, tiny)
    return lambda x: x
