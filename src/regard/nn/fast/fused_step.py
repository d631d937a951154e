"""One decoding step of a whole stack without module calls; beams share the keys and values of their source.

Module calls take a large part of a small step on a CPU: with one row of `regard-gpt` on one core, 65 instead of 81 ms
in a single measurement on a busy machine. The result equals that of the stack up to rounding. Hooks and recordings are
bypassed, so check `supports_fused_step` first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn import recording
from regard.nn.attention import Attention, FusedProjection, SeparateProjections
from regard.nn.block import Block, FeedForward, OffsetRMSNorm, Residual
from regard.nn.cache import DecoderState, KVCache, LayerCache
from regard.nn.embedding import RelativePositionBias
from regard.nn.fast.int8_weights import Int8Weight
from regard.nn.kernels import HALF
from regard.nn.masks import attention_mask
from regard.nn.rotary import Rotary
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
        Rotary,
        Dropout,
    ),
    *(nn.ModuleList, nn.Linear, nn.LayerNorm, nn.RMSNorm, OffsetRMSNorm, nn.Embedding, nn.Identity),
}


def supports_fused_step(stack: Stack) -> bool:
    """Whether a fused step is equivalent: no gradients, recording, hooks, autocast, training mode or other modules."""
    observed = torch.is_grad_enabled() or recording.is_recording()
    observed = observed or any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))
    return (
        not observed
        and not any(
            type(module) not in _SUPPORTED or module.training or module._forward_hooks or module._forward_pre_hooks
            for module in stack.modules()
        )
        and all(type(cast(Block, block).attention.project) is FusedProjection for block in stack.layers)
    )


class FusedStep:
    """A decoding step of a stack; `linear` computes the products. Weights are looked up once: do not replace them."""

    def __init__(self, stack: Stack, linear: Linear = F.linear) -> None:
        self.layers = [_LayerStep(cast(Block, block), linear) for block in stack.layers]
        self.norm = _norm(stack.norm)
        self.relative = stack.relative

    def __call__(self, x: Tensor, state: DecoderState) -> Tensor:
        """Map the vectors (B, W) of the tokens that `state` was extended by to the last hidden state (B, W)."""
        step = _Step(state, None if self.relative is None else self.relative(1, state.mask.shape[1]), x.dtype)
        for layer, cache in zip(self.layers, state.cache.layers, strict=True):
            x = layer(x, cache, step)
        return self.norm(x)


class _Step:
    """What the layers of one step share: the biases of the scores, by window, and the angles of rotary positions."""

    def __init__(self, state: DecoderState, relative: Tensor | None, dtype: torch.dtype) -> None:
        self.state, self.relative, self.dtype = state, relative, dtype
        self.biases: dict[int | None, Tensor | None] = {}
        self.rotations: dict[Rotary, tuple[Tensor, Tensor]] = {}

    def bias(self, window: int | None) -> Tensor | None:
        """Return what is added to the scores (B, H, 1, S) of attention with a window."""
        if window not in self.biases:
            keys = self.state.mask.shape[1]
            mask = attention_mask(
                self.state.layout,
                self.state.mask,
                1,
                keys,
                causal=True,
                window=None if window is None or keys <= window + 1 else window,
            )
            bias = None if self.relative is None else self.relative.to(self.dtype)
            if mask is not None:
                hidden = torch.zeros(mask.shape, dtype=self.dtype, device=mask.device).masked_fill_(~mask, -torch.inf)
                hidden = hidden if hidden.ndim == 4 else hidden[None, None]
                bias = hidden if bias is None else bias + hidden
            self.biases[window] = bias
        return self.biases[window]

    def rotate(self, rotary: Rotary, x: Tensor) -> Tensor:
        """Rotate x (B, H, D) at the position of each row's token."""
        if rotary not in self.rotations:
            self.rotations[rotary] = rotary.angles(self.state.lengths - 1)
        return rotary.rotate(x, *self.rotations[rotary])


class _LayerStep:
    def __init__(self, block: Block, linear: Linear) -> None:
        self.first = block.attention_residual.first
        self.attention_norm, self.ffn_norm = _norm(block.attention_residual.norm), _norm(block.ffn_residual.norm)
        self.after_attention, self.after_ffn = (
            _norm(block.attention_residual.post_norm),
            _norm(block.ffn_residual.post_norm),
        )
        own = block.attention
        self.project, self.output = _linear(own.project, linear), _linear(own.output, linear)
        self.heads, self.scale, self.window = own.heads, own.scale, own.window
        self.query_norm = None if own.query_norm is None else _norm(own.query_norm)
        self.key_norm = None if own.key_norm is None else _norm(own.key_norm)
        self.rotary = own.positions if isinstance(own.positions, Rotary) else None
        assert isinstance(own.project, FusedProjection)
        query_size, key_size, _ = own.project.sizes
        self.key_heads = self.heads * key_size // query_size
        self.cross = _CrossAttention(block, linear) if block.has_cross_attention else None
        self.inner, self.outer = _linear(block.ffn.inner, linear), _linear(block.ffn.outer, linear)
        self.activate = block.ffn.activate

    def __call__(self, x: Tensor, cache: LayerCache, step: _Step) -> Tensor:
        if self.first:
            x = x + self._attend(self.attention_norm(x), cache.self_attention, step)
            if self.cross is not None:
                x = x + self.cross(self.cross.norm(x), cache.cross_attention, step.state)
            return x + self._feed(self.ffn_norm(x))
        x = self.attention_norm(x + self._attend(x, cache.self_attention, step))
        if self.cross is not None:
            x = self.cross.norm(x + self.cross(x, cache.cross_attention, step.state))
        return self.ffn_norm(x + self._feed(x))

    def _attend(self, x: Tensor, cache: KVCache, step: _Step) -> Tensor:
        rows, key_heads = len(x), self.key_heads
        projected = self.project(x).view(rows, self.heads + 2 * key_heads, -1)
        both, value = projected.split_with_sizes([self.heads + key_heads, key_heads], 1)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = both.split_with_sizes([self.heads, key_heads], 1)
            both = torch.cat([self.query_norm(query), self.key_norm(key)], dim=1)
        if self.rotary is not None:
            both = step.rotate(self.rotary, both)
        query, key = both.split_with_sizes([self.heads, key_heads], 1)
        key, value = cache.extend(key.unsqueeze(2), value.unsqueeze(2))
        bias = step.bias(self.window)
        # The heads that share a key head are its queries.
        grouped = query.reshape(rows, key_heads, self.heads // key_heads, -1)
        if bias is not None and bias.shape[1] != 1:
            bias = bias.view(len(bias), *grouped.shape[1:3], -1)
        scale = query.shape[-1] ** -0.5 if self.scale is None else self.scale
        if x.dtype in HALF or rows == 1:
            mixed = F.scaled_dot_product_attention(grouped, key, value, attn_mask=bias, scale=scale)
        else:  # for several rows with one query each, two products are faster than the fused kernel
            flat = (grouped * scale).flatten(0, 1)
            scores = torch.bmm(flat, key.flatten(0, 1).transpose(1, 2)).view(*grouped.shape[:3], -1)
            weights = (scores if bias is None else scores + bias).softmax(-1)
            mixed = torch.bmm(weights.flatten(0, 1), value.flatten(0, 1))
        return self.after_attention(self.output(mixed.reshape(rows, -1)))

    def _feed(self, x: Tensor) -> Tensor:
        return self.after_ffn(self.outer(self.activate(self.inner(x))))


class _CrossAttention:
    """Cross-attention that treats the rows of a source as queries of one call, so its keys and values exist once."""

    def __init__(self, block: Block, linear: Linear) -> None:
        cross = block.cross
        assert isinstance(cross.project, SeparateProjections)
        self.norm, self.post_norm = _norm(block.cross_residual.norm), _norm(block.cross_residual.post_norm)
        self.query, self.output = _linear(cross.project.query, linear), _linear(cross.output, linear)
        self.heads, self.scale = cross.heads, cross.scale

    def __call__(self, x: Tensor, cache: KVCache, state: DecoderState) -> Tensor:
        assert cache.key is not None and cache.value is not None, "the source must be encoded before the first step"
        query = self.query(x).view(-1, state.rows_per_source, self.heads, cache.key.shape[-1]).transpose(1, 2)
        mask = None if state.memory_layout is None else state.memory_layout.mask
        mask = None if mask is None else mask[:, None, None]
        mixed = F.scaled_dot_product_attention(query, cache.key, cache.value, attn_mask=mask, scale=self.scale)
        return self.post_norm(self.output(mixed.transpose(1, 2).reshape(len(x), -1)))


def _linear(module: nn.Module, linear: Linear) -> Function:
    assert isinstance(module, nn.Linear)
    weight, bias = module.weight, module.bias
    if isinstance(weight, Int8Weight):
        return lambda x: weight.linear(x, bias)
    return lambda x: linear(x, weight, bias)


def _norm(module: nn.Module | None) -> Function:
    if isinstance(module, nn.LayerNorm):
        shape, weight, bias, eps = list(module.normalized_shape), module.weight, module.bias, module.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    if isinstance(module, nn.RMSNorm):
        return _rms_norm(module)
    if isinstance(module, OffsetRMSNorm):
        return module.forward
    return lambda x: x


def _rms_norm(module: nn.RMSNorm) -> Function:
    """x w / sqrt(mean(x²) + eps), in four operations where `F.rms_norm` takes about ten on a CPU."""
    size, weight, eps = list(module.normalized_shape), module.weight, module.eps
    if weight is None or eps is None or weight.dtype != torch.float32 or weight.device.type != "cpu":
        return lambda x: F.rms_norm(x, size, weight, eps)
    width = math.prod(size)
    scaled, smallest = weight.detach() * width**0.5, torch.tensor((width * eps) ** 0.5)
    return lambda x: (x * scaled).div_(torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(smallest))
