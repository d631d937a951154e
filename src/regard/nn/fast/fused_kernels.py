"""GPU kernels for a layer without gradients: residual + norm, bias + GELU, and attention in short sequences.

For post-norm families with layer norms (BERT and its relatives; the attention also for others) in bf16: a forward pass
of BERT-base is 1.62 times as fast for texts of 24 tokens and 1.30 times for texts of 256 on an H200
(benchmarks/results/fast_paths-cuda.json, 2026-11-19).

A layer's matrix products leave the GPU's arithmetic units idle while the steps between them read and write memory; each
kernel here does in one pass what PyTorch does in two. GELU becomes part of the matrix product, in its tanh form: it
differs from the exact form by less than bfloat16 resolves. Needs Triton, which the CUDA build of PyTorch brings along.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from regard.nn.masks import Packed

MAX_WIDTH = 8192  # numbers per row that one program holds in registers
HEAD_WIDTHS = (16, 32, 64, 128)
MAX_LENGTH = 512  # tokens per sequence; PyTorch's kernel computes longer ones
# The longest sequence, and the queries and keys per step of a program, its warps and the stages of its pipeline.
TILES = ((16, 16, 16, 1, 2), (32, 32, 32, 2, 2), (64, 64, 64, 4, 2), (512, 64, 64, 4, 3))
POOL_ROWS, POOL_COLUMNS = 32, 128  # of the tiles in which vectors are added up
LOG2_E = math.log2(math.e)


def fused_add_norm(x: Tensor, update: Tensor, norm: nn.Module) -> Tensor | None:
    """Return norm(x + update), computed in float32; None if the kernel does not apply."""
    if not isinstance(norm, nn.LayerNorm) or x.dtype != update.dtype or not _applies(update):
        return None
    x, update = x.contiguous(), update.contiguous()
    result = torch.empty_like(x)
    width = x.shape[-1]
    if rows := x.numel() // width:
        block = 1 << (width - 1).bit_length()
        with torch.cuda.device(x.device):
            _kernels().add_layer_norm[(rows,)](
                x, update, norm.weight, norm.bias, result, width, norm.eps, BLOCK=block, num_warps=4
            )
    return result


def fused_linear_gelu(x: Tensor, linear: nn.Module) -> Tensor | None:
    """Return gelu(linear(x)); None if the kernel does not apply."""
    if not isinstance(linear, nn.Linear) or linear.bias is None or linear.weight.dtype != x.dtype or not _applies(x):
        return None
    rows = x.reshape(-1, x.shape[-1])
    result = torch._addmm_activation(linear.bias, rows, linear.weight.t(), use_gelu=True)
    return result.view(*x.shape[:-1], -1)


def fused_packed_attention(
    query: Tensor, key: Tensor, value: Tensor, layout: Packed, *, scale: float, causal: bool
) -> Tensor | None:
    """Attend within each sequence of a packed batch, (N, H, D); None if the kernel does not apply.

    One program holds a short sequence of one head, where kernels for long sequences would mostly compute padding.
    """
    _, heads, width = query.shape
    same = query.stride() == key.stride() == value.stride() and query.stride()[1:] == (width, 1)
    if not same or width not in HEAD_WIDTHS or layout.max_length > MAX_LENGTH or not _applies(query):
        return None
    _, block_t, block_s, warps, stages = next(tile for tile in TILES if tile[0] >= layout.max_length)
    blocks = -(-layout.max_length // block_t)
    result = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    with torch.cuda.device(query.device):
        _kernels().packed_attention[(blocks * (len(layout.starts) - 1), heads)](
            query,
            key,
            value,
            result,
            layout.starts,
            query.stride(0),
            scale * LOG2_E,
            HEADS=heads,
            WIDTH=width,
            CAUSAL=causal,
            BLOCKS=blocks,
            BLOCK_T=block_t,
            BLOCK_S=block_s,
            num_warps=warps,
            num_stages=stages,
        )
    return result


def fused_mean_pool(x: Tensor, layout: Packed) -> Tensor | None:
    """Return the mean of each sequence's vectors, (B, W) in float32; None if the kernel does not apply."""
    if not _applies(x):
        return None
    x, width, count = x.contiguous(), x.shape[-1], len(layout.starts) - 1
    result = torch.empty(count, width, dtype=torch.float32, device=x.device)
    with torch.cuda.device(x.device):
        _kernels().mean_pool[(count, -(-width // POOL_COLUMNS))](
            x, layout.starts, result, width, ROWS=POOL_ROWS, COLUMNS=POOL_COLUMNS, num_warps=4
        )
    return result


def _applies(x: Tensor) -> bool:
    """Whether the kernels can be used for x: on a CUDA GPU, in 16 bits, without gradients."""
    return (
        x.is_cuda
        and x.dtype in (torch.bfloat16, torch.float16)
        and not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and x.shape[-1] <= MAX_WIDTH
        and _kernels() is not None
    )


@cache
def _kernels() -> Any:
    """The compiled kernels' module, or None without Triton."""
    try:
        from regard.nn.fast import triton_kernels
    except ImportError:
        return None
    return triton_kernels
