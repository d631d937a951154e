"""A layer as functions of tensors instead of calls of modules: the second form of the arithmetic of `nn.block.Block`.

One short text through MiniLM makes 1,600 Python calls less, see docs/performance.md ("One short text"); a decoding step
with one row of `regard-gpt` takes 65 instead of 81 ms. For all families whose layers are `Block`s. Two users:
`inference_layers` (texts without a cache) and `fused_step` (a token with one), which differ in the products they pass
and in what they do between the projections of the attention. Hooks and recordings are bypassed: the users check that
there are none.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.block import Block
from regard.nn.rotary import Rotary

Function = Callable[[Tensor], Tensor]
MakeProduct = Callable[[nn.Module], Function]  # a linear layer -> a function that computes it
Rotate = Callable[[Rotary, Tensor], Tensor]  # rotates (..., H, D) at the positions of its tokens


class FusedLayer:
    """The functions of a layer with self-attention. Weights are looked up once: do not replace them."""

    def __init__(self, block: Block, product: MakeProduct) -> None:
        attention, residual = block.attention, block.attention_residual
        query_size, key_size, _ = attention.project.sizes  # type: ignore[misc]
        self.heads, self.key_heads = attention.heads, attention.heads * key_size // query_size
        self.first = residual.first
        self.attention_norm, self.ffn_norm = norm_function(residual.norm), norm_function(block.ffn_residual.norm)
        self.after_attention = norm_function(residual.post_norm)
        self.after_ffn = norm_function(block.ffn_residual.post_norm)
        self.project, self.output = product(attention.project), product(attention.output)
        normed = attention.query_norm is not None
        self.query_norm = norm_function(attention.query_norm) if normed else None
        self.key_norm = norm_function(attention.key_norm)
        self.rotary = attention.positions if isinstance(attention.positions, Rotary) else None
        self.inner, self.outer, self.activate = product(block.ffn.inner), product(block.ffn.outer), block.ffn.activate

    def __call__(
        self, x: Tensor, attend: Function, *, cross: Function | None = None, select: Function | None = None
    ) -> Tensor:
        """Map the vectors (..., W) of tokens. `attend` maps the output of the projection to the averaged values.

        `cross` adds cross-attention, with its residual and norm. `select` takes the positions whose output is needed.
        """
        mixed = attend(self.project(self.attention_norm(x) if self.first else x))
        if select is not None:
            x, mixed = select(x), select(mixed)
        x = x + self.after_attention(self.output(mixed))
        x = x if self.first else self.attention_norm(x)
        x = x if cross is None else cross(x)
        if self.first:
            return x + self.after_ffn(self.outer(self.activate(self.inner(self.ffn_norm(x)))))
        return self.ffn_norm(x + self.after_ffn(self.outer(self.activate(self.inner(x)))))

    def split_heads(self, projected: Tensor, rotate: Rotate) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values (..., H, D) of the output of the projection, with norms and positions."""
        heads, key_heads = self.heads, self.key_heads
        parts = projected.view(*projected.shape[:-1], heads + 2 * key_heads, -1)
        if self.query_norm is None and self.rotary is None:
            query, key, value = parts.split_with_sizes((heads, key_heads, key_heads), -2)
            return query, key, value
        both, value = parts.split_with_sizes((heads + key_heads, key_heads), -2)
        if self.query_norm is not None:
            query, key = both.split_with_sizes((heads, key_heads), -2)
            both = torch.cat([self.query_norm(query), self.key_norm(key)], dim=-2)
        if self.rotary is not None:
            both = rotate(self.rotary, both)
        query, key = both.split_with_sizes((heads, key_heads), -2)
        return query, key, value


def norm_function(module: nn.Module | None) -> Function:
    """Return the function of a norm; the identity for None."""
    if module is None or isinstance(module, nn.Identity):
        return _identity
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


def _identity(x: Tensor) -> Tensor:
    return x
