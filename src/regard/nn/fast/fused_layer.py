"""A layer as functions of tensors instead of calls of modules: the second form of the arithmetic of `nn.block`.

For all families whose layers are a `Block` or a `ParallelBlock`, that is all Transformers but the first layer of
DeBERTa. Two users: `inference_layers` (complete texts) and `fused_step` (one token with a cache), which differ in the
products they pass and in what they do between the projections of the attention. Hooks and recordings are bypassed: the
users check that there are none. What it buys: one short text through MiniLM takes 3.3 instead of 3.9 ms in float32 and
1.8 instead of 2.2 in int8; long batches gain nothing (benchmarks/results/fast_paths-cpu.json, 2026-11-19).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.block import Block, ParallelBlock
from regard.nn.masks import Context, Packed, Padded
from regard.nn.rotary import Rotary

Function = Callable[[Tensor], Tensor]
MakeProduct = Callable[[nn.Module], Function]  # a linear layer -> a function that computes it
Rotate = Callable[[Rotary, Tensor], Tensor]  # rotates (..., H, D) at the positions of its tokens


class Texts:
    """What the layers of a pass over complete texts share: layout, bias of the scores, angles of rotary positions."""

    def __init__(self, context: Context, bias: Tensor | None, x: Tensor) -> None:
        self.layout, self.bias = context.layout, bias
        self.positions = partial(context.layout.positions, x, context.start)
        if isinstance(context.layout, Packed) and context.layout.lengths == (len(x),):
            self.layout = Padded()  # attention to one text alone: a rectangle without copies
        self.angles: dict[Rotary, tuple[Tensor, Tensor]] = {}

    def rotate(self, rotary: Rotary, x: Tensor) -> Tensor:
        if rotary not in self.angles:
            self.angles[rotary] = rotary.angles(self.positions())
        return rotary.rotate(x, *self.angles[rotary])


class FusedLayer:
    """The functions of a layer with self-attention. Weights are looked up once: do not replace them."""

    def __init__(self, block: Block | ParallelBlock, product: MakeProduct) -> None:
        attention, ffn = block.attention, block.ffn
        self.attention = attention
        query_size, key_size, _ = attention.project.sizes  # type: ignore[misc]
        self.heads, self.key_heads = attention.heads, attention.heads * key_size // query_size
        self.project, self.output = product(attention.project), product(attention.output)
        self.query_norm, self.key_norm = norm_function(attention.query_norm), norm_function(attention.key_norm)
        self.has_head_norms = attention.query_norm is not None
        self.rotary = attention.positions if isinstance(attention.positions, Rotary) else None
        self.inner, self.outer, self.activate = product(ffn.inner), product(ffn.outer), ffn.activate
        self.parallel = isinstance(block, ParallelBlock)
        if isinstance(block, ParallelBlock):
            self.attention_norm = norm_function(block.norm)
            self.parallel_norm = None if block.ffn_norm is None else norm_function(block.ffn_norm)
            return
        residual, ffn_residual = block.attention_residual, block.ffn_residual
        self.first = residual.first
        self.attention_norm, self.ffn_norm = norm_function(residual.norm), norm_function(ffn_residual.norm)
        self.after_attention, self.after_ffn = norm_function(residual.post_norm), norm_function(ffn_residual.post_norm)

    def __call__(
        self, x: Tensor, attend: Function, *, cross: Function | None = None, select: Function | None = None
    ) -> Tensor:
        """Map the vectors (..., W) of tokens. `attend` maps the output of the projection to the averaged values.

        `cross` adds cross-attention, with its residual and norm. `select` takes the positions whose output is needed.
        """
        select = select or identity
        if self.parallel:
            normed = self.attention_norm(x)
            attended = self.output(select(attend(self.project(normed))))
            x = select(x)
            return x + attended + self._feed(select(normed) if self.parallel_norm is None else self.parallel_norm(x))
        if self.first:
            mixed = attend(self.project(self.attention_norm(x)))
            x = self.after_attention(self.output(select(mixed))).add_(select(x))  # in place: new memory costs more
            x = x if cross is None else cross(x)
            return self.after_ffn(self._feed(self.ffn_norm(x))).add_(x)
        mixed = attend(self.project(x))
        x = self.attention_norm(self.after_attention(self.output(select(mixed))).add_(select(x)))
        x = x if cross is None else cross(x)
        return self.ffn_norm(self.after_ffn(self._feed(x)).add_(x))

    def _feed(self, x: Tensor) -> Tensor:
        return self.outer(self.activate(self.inner(x)))

    def attend(self, texts: Texts, projected: Tensor) -> Tensor:
        """Attention within complete texts, of the output of the projection."""
        layout, bias = texts.layout, texts.bias
        if isinstance(layout, Packed):
            query, key, value = self.split_heads(projected, texts.rotate)
            return self.attention.attend_packed(query, key, value, layout, layout, bias).flatten(-2)
        rows = projected if projected.ndim == 3 else projected[None]  # one text that came packed
        query, key, value = self.split_heads(rows, texts.rotate)
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        mixed = self.attention.attend_padded(query, key, value, layout, bias, None).transpose(1, 2)
        return mixed.flatten(-2) if rows is projected else mixed.reshape(len(projected), -1)

    def split_heads(self, projected: Tensor, rotate: Rotate) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values (..., H, D) of the output of the projection, with norms and positions."""
        heads, key_heads = self.heads, self.key_heads
        parts = projected.view(*projected.shape[:-1], heads + 2 * key_heads, -1)
        if not self.has_head_norms and self.rotary is None:
            query, key, value = parts.split_with_sizes((heads, key_heads, key_heads), -2)
            return query, key, value
        both, value = parts.split_with_sizes((heads + key_heads, key_heads), -2)
        if self.has_head_norms:
            query, key = both.split_with_sizes((heads, key_heads), -2)
            both = torch.cat([self.query_norm(query), self.key_norm(key)], dim=-2)
        if self.rotary is not None:
            both = rotate(self.rotary, both)
        query, key = both.split_with_sizes((heads, key_heads), -2)
        return query, key, value


def norm_function(module: nn.Module | None) -> Function:
    """Return the function of a norm; the identity for None."""
    if module is None or isinstance(module, nn.Identity):
        return identity
    if isinstance(module, nn.LayerNorm):
        shape, weight, bias, eps = list(module.normalized_shape), module.weight, module.bias, module.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    if isinstance(module, nn.RMSNorm):
        return _rms_norm(module)
    return module.forward


def _rms_norm(module: nn.RMSNorm) -> Function:
    """x w / sqrt(mean(x²) + eps), in four operations where `F.rms_norm` takes about ten on a CPU."""
    size, weight, eps = list(module.normalized_shape), module.weight, module.eps
    if weight is None or eps is None or weight.dtype != torch.float32 or weight.device.type != "cpu":
        return lambda x: F.rms_norm(x, size, weight, eps)
    width = math.prod(size)
    scaled, smallest = weight.detach() * width**0.5, torch.tensor((width * eps) ** 0.5)
    return lambda x: (x * scaled).div_(torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(smallest))


def identity(x: Tensor) -> Tensor:
    return x
