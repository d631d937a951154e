"""One decoding step of a whole stack without module calls; beams share the keys and values of their source.

For all families of `fused_layer` that decode. Two users: the steps that a GPU records as CUDA graphs, which are its
reason, and decoding on a CPU, where it gains for small models only (8 layers of 512: 1.13 times; GPT-2 small: 0.98 to
1.16 times in three runs, since most of a step is reading weights; `benchmarks.fast_paths`, 2026-11-19). The result
equals that of the stack up to rounding. Hooks and recordings are bypassed, so check `supports_fused_step` first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn import recording
from regard.nn.attention import Attention, FusedProjection, SeparateProjections
from regard.nn.block import (
    Block,
    FeedForward,
    JoinedRMSNorm,
    OffsetRMSNorm,
    ParallelBlock,
    Residual,
    Scale,
    TransformerLayer,
)
from regard.nn.cache import DecoderState, KVCache, LayerCache
from regard.nn.embedding import RelativePositionBias
from regard.nn.fast.fused_layer import Function, FusedLayer, MakeProduct, norm_function
from regard.nn.fast.int8_weights import Int8Weight
from regard.nn.kernels import HALF
from regard.nn.masks import attention_mask
from regard.nn.rotary import Rotary
from regard.nn.stack import Stack
from regard.nn.training import Dropout

Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]

_SUPPORTED = {
    *(
        Stack,
        Block,
        ParallelBlock,
        Attention,
        FusedProjection,
        SeparateProjections,
        FeedForward,
        Residual,
        RelativePositionBias,
        Rotary,
        Dropout,
    ),
    *(
        nn.ModuleList,
        nn.Linear,
        nn.LayerNorm,
        nn.RMSNorm,
        OffsetRMSNorm,
        JoinedRMSNorm,
        Scale,
        nn.Embedding,
        nn.Identity,
    ),
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
        and all(type(cast(TransformerLayer, block).attention.project) is FusedProjection for block in stack.layers)
    )


class FusedStep:
    """A decoding step of a stack; `linear` computes the products. Weights are looked up once: do not replace them."""

    def __init__(self, stack: Stack, linear: Linear = F.linear) -> None:
        product = partial(_product, linear=linear)
        self.layers = [_LayerStep(cast("Block | ParallelBlock", block), product) for block in stack.layers]
        self.norm = norm_function(stack.norm)
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
    """A layer with the attention of a step: one query per row, keys and values from the cache."""

    def __init__(self, block: Block | ParallelBlock, product: MakeProduct) -> None:
        self.layer = FusedLayer(block, product)
        self.cross = _CrossAttention(cast(Block, block), product) if block.has_cross_attention else None
        self.scale, self.window = block.attention.scale, block.attention.window

    def __call__(self, x: Tensor, cache: LayerCache, step: _Step) -> Tensor:
        cross, cross_cache = self.cross, cache.cross_attention

        def attend(projected: Tensor) -> Tensor:
            return self._attend(projected, cache.self_attention, step)

        return self.layer(x, attend, cross=None if cross is None else lambda x: cross(x, cross_cache, step.state))

    def _attend(self, projected: Tensor, cache: KVCache, step: _Step) -> Tensor:
        rows, key_heads = len(projected), self.layer.key_heads
        query, key, value = self.layer.split_heads(projected, step.rotate)
        key, value = cache.extend(key.unsqueeze(2), value.unsqueeze(2))
        bias = step.bias(self.window)
        # The heads that share a key head are its queries.
        grouped = query.reshape(rows, key_heads, self.layer.heads // key_heads, -1)
        if bias is not None and bias.shape[1] != 1:
            bias = bias.view(len(bias), *grouped.shape[1:3], -1)
        scale = query.shape[-1] ** -0.5 if self.scale is None else self.scale
        if query.dtype in HALF or rows == 1:
            mixed = F.scaled_dot_product_attention(grouped, key, value, attn_mask=bias, scale=scale)
        else:  # for several rows with one query each, two products are faster than the fused kernel
            flat = (grouped * scale).flatten(0, 1)
            scores = torch.bmm(flat, key.flatten(0, 1).transpose(1, 2)).view(*grouped.shape[:3], -1)
            weights = (scores if bias is None else scores + bias).softmax(-1)
            mixed = torch.bmm(weights.flatten(0, 1), value.flatten(0, 1))
        return mixed.reshape(rows, -1)


class _CrossAttention:
    """Cross-attention that treats the rows of a source as queries of one call, so its keys and values exist once."""

    def __init__(self, block: Block, product: MakeProduct) -> None:
        cross, residual = block.cross, block.cross_residual
        assert isinstance(cross.project, SeparateProjections)
        self.first = residual.first
        self.norm, self.post_norm = norm_function(residual.norm), norm_function(residual.post_norm)
        self.query, self.output = product(cross.project.query), product(cross.output)
        self.heads, self.scale = cross.heads, cross.scale

    def __call__(self, x: Tensor, cache: KVCache, state: DecoderState) -> Tensor:
        """Return x with the attention to the source added."""
        if self.first:
            return x + self._attend(self.norm(x), cache, state)
        return self.norm(x + self._attend(x, cache, state))

    def _attend(self, x: Tensor, cache: KVCache, state: DecoderState) -> Tensor:
        assert cache.key is not None and cache.value is not None, "the source must be encoded before the first step"
        query = self.query(x).view(-1, state.rows_per_source, self.heads, cache.key.shape[-1]).transpose(1, 2)
        mask = None if state.memory_layout is None else state.memory_layout.mask
        mask = None if mask is None else mask[:, None, None]
        mixed = F.scaled_dot_product_attention(query, cache.key, cache.value, attn_mask=mask, scale=self.scale)
        return self.post_norm(self.output(mixed.transpose(1, 2).reshape(len(x), -1)))


def _product(module: nn.Module, linear: Linear) -> Function:
    assert isinstance(module, nn.Linear)
    weight, bias = module.weight, module.bias
    if isinstance(weight, Int8Weight):
        return lambda x: weight.linear(x, bias)
    return lambda x: linear(x, weight, bias)
