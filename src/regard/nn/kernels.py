"""The choice of kernels: those of `nn/fast`, which return None where they do not apply, and attention's own.

Everything works without `nn/fast`.
"""

from __future__ import annotations

from typing import Any, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.masks import Packed, Padded, attention_mask

try:
    from regard.nn.fast.fused_kernels import fused_add_norm as fused_add_norm
    from regard.nn.fast.fused_kernels import fused_linear_gelu as fused_linear_gelu
    from regard.nn.fast.fused_kernels import fused_mean_pool as fused_mean_pool
    from regard.nn.fast.fused_kernels import fused_packed_attention as fused_packed_attention
except ImportError:

    def _does_not_apply(*arguments: Any, **options: Any) -> Tensor | None:
        return None

    fused_add_norm = fused_linear_gelu = fused_mean_pool = fused_packed_attention = _does_not_apply

HALF = (torch.bfloat16, torch.float16)
HEAD_WIDTHS = range(8, 257, 8)  # of which there is a kernel for packed batches


class KernelOptions(TypedDict):
    """What the kernels of attention need to know beside queries, keys, values and their layouts."""

    scale: float  # of the scores
    causal: bool
    window: int | None  # maximum distance between a query and its keys; None: no limit
    dropout: float  # of the weights; 0 outside training


def repeat_heads(x: Tensor, heads: int, *, dim: int = 1) -> Tensor:
    """Repeat the key heads of grouped-query attention, so that each of the `heads` of the queries has its own."""
    return x if x.shape[dim] == heads else x.repeat_interleave(heads // x.shape[dim], dim=dim)


def padded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keys: Padded,
    bias: Tensor | None,
    *,
    scale: float,
    causal: bool,
    window: int | None,
    dropout: float,
) -> Tensor:
    """Return the weighted averages (B, H, T, D) of the values, of which there may be fewer heads."""
    T, S = query.shape[2], key.shape[2]
    window = window if window is not None and window + 1 < S else None
    # The kernels align the causal mask to the top left, so `is_causal` needs T = S and no other mask.
    is_causal = causal and T == S and keys.mask is None and bias is None and window is None
    mask = None if is_causal else attention_mask(keys, query, T, S, causal=causal, window=window)
    if bias is not None:
        bias = bias.to(query.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    grouped = key.shape[1] != query.shape[1]
    if grouped and T == 1 and bias is None:
        # The heads that share a key head become its queries, so that a step does not copy the cache.
        queries = query.reshape(len(query), key.shape[1], -1, query.shape[-1])
        return F.scaled_dot_product_attention(
            queries, key, value, attn_mask=mask, dropout_p=dropout, scale=scale
        ).reshape(query.shape)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=is_causal, scale=scale, enable_gqa=grouped
    )


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layout: Packed,
    keys: Packed,
    *,
    scale: float,
    causal: bool,
    window: int | None,
    dropout: float,
) -> Tensor | None:
    """Return the weighted averages (N, H, D) within each sequence from one kernel; None if no kernel does it."""
    heads = query.shape[1]
    if not (query.is_cuda and query.dtype in HALF and query.shape[-1] in HEAD_WIDTHS):
        return None
    unlimited = window is None or layout.max_length <= window + 1
    if layout is keys and key.shape[1] == heads and unlimited:  # for short sequences, without gradients
        mixed = fused_packed_attention(query, key, value, layout, scale=scale, causal=causal)
        if mixed is not None:
            return mixed
    inputs = (query, repeat_heads(key, heads), repeat_heads(value, heads), layout.starts, keys.starts)
    limits = layout.max_length, keys.max_length
    if dropout:  # `varlen_attn` calls this op without dropout
        sides = {"window_size_left": window, "window_size_right": 0 if causal else window}
        flash = torch.ops.aten._flash_attention_forward
        return flash(*inputs, *limits, dropout, causal, False, scale=scale, **sides)[0]  # type: ignore[no-any-return]
    from torch.nn.attention.varlen import varlen_attn

    before = -1 if window is None else window
    result = varlen_attn(*inputs, *limits, scale=scale, window_size=(before, 0 if causal else before))
    return result if isinstance(result, Tensor) else result[0]
