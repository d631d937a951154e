"""Self-attention with dropout on the attention weights, forward and backward, for training in half precision on a GPU.

The kernels of cuDNN and FlashAttention draw a random number for every weight, in both passes. These draw one per query
and one per key; the product of the two decides whether a weight is dropped. They read queries, keys and values where
the fused projection wrote them, and write the gradients in the same layout, so that nothing is split or concatenated.
`Attention` uses them in training, if it has dropout and Triton is installed. Batches are padded without a mask, or
packed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from regard.nn.training import WORD

WIDTHS = (32, 64, 128)  # of a head
MAX_LENGTH = 512  # of a sequence; the blocks below are chosen for this length and for this generation of GPUs
HOPPER = 9  # major compute capability
HAS_TRITON = find_spec("triton") is not None


@dataclass(frozen=True)
class Blocks:
    """How a kernel divides an attention map: queries and keys per block, and Triton's launch options."""

    rows: int
    columns: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class KernelConfig:
    """The blocks of the forward and the backward kernels.

    Without `queries` one program computes all gradients of a head. With it, programs for blocks of keys compute dK and
    dV, and programs for blocks of queries compute dQ from a second copy of the map.
    """

    forward: Blocks
    backward: Blocks
    queries: Blocks | None = None


SHORT = KernelConfig(forward=Blocks(128, 32, 4, 3), backward=Blocks(64, 128, 8, 3))  # up to 128 tokens
LONG = KernelConfig(forward=Blocks(128, 64, 4, 3), backward=Blocks(32, 64, 4, 3), queries=Blocks(64, 64, 4, 2))
WIDE = KernelConfig(forward=Blocks(64, 64, 4, 2), backward=Blocks(32, 64, 4, 1))  # for heads wider than 64


def kernel_config(length: int, width: int) -> KernelConfig:
    """Return the blocks for sequences up to `length`; benchmarks/attention_dropout.py measures the choice."""
    if width > 64:
        return WIDE
    return SHORT if length <= SHORT.backward.columns else LONG


def is_supported(x: Tensor, *, dtype: torch.dtype, width: int, length: int) -> bool:
    """Whether the kernels run on the device of x, for heads of `width` in `dtype` and sequences up to `length`."""
    return (
        x.is_cuda
        and dtype in (torch.bfloat16, torch.float16)
        and width in WIDTHS
        and length <= MAX_LENGTH
        and HAS_TRITON
        and torch.cuda.get_device_properties(x.device).major == HOPPER
    )


def dropout_attention(
    qkv: Tensor,
    *,
    heads: int,
    dropout: float,
    scale: float,
    causal: bool = False,
    starts: Tensor | None = None,
    length: int | None = None,
) -> Tensor:
    """Return (softmax(scale Q K^T) * Z) V, with the dropout mask Z, whose elements are 0 or 1 / (1 - dropout).

    `qkv` is a fused projection, (B, T, 3 H D) padded or (N, 3 H D) packed; the result is (B, T, H, D) or (N, H, D).
    A packed batch needs the `starts` (B + 1,) of its sequences and their maximum `length`.
    """
    width = qkv.shape[-1] // (3 * heads)
    length = qkv.shape[-2] if length is None else length
    flat = qkv.reshape(-1, 3, heads, width)
    factors = dropout_factors(heads, len(flat), qkv.device)
    mixed: Tensor = _forward(flat, factors, starts, length, dropout, scale, causal)[0]
    return mixed.view(*qkv.shape[:-1], heads, width)


def dropout_factors(heads: int, tokens: int, device: torch.device) -> Tensor:
    """Draw two odd numbers of 32 bits per head and token, (2, H, N): its factors as a query and as a key.

    A weight is dropped if the product of its two factors is low. For random factors the weights of any two queries,
    keys or heads are as good as independent. They are drawn here, on the device, so that each replay of a CUDA graph
    has other masks.
    """
    return torch.randint(0, WORD // 2, (2, heads, tokens), device=device).to(torch.int32) * 2 + 1


@torch.library.custom_op("regard::dropout_attention", mutates_args=())
def _forward(
    qkv: Tensor, factors: Tensor, starts: Tensor | None, length: int, dropout: float, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """Return the output (N, H, D) and the log-sum-exp (H, N) in base 2 for qkv (N, 3, H, D)."""
    return run_forward(qkv, factors, starts, length, dropout, scale, causal, kernel_config(length, qkv.shape[-1]))


@_forward.register_fake
def _(
    qkv: Tensor, factors: Tensor, starts: Tensor | None, length: int, dropout: float, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    tokens, _, heads, width = qkv.shape
    return qkv.new_empty(tokens, heads, width), qkv.new_empty(heads, tokens, dtype=torch.float32)


@torch.library.custom_op("regard::dropout_attention_backward", mutates_args=())
def _backward(
    gradient: Tensor,
    qkv: Tensor,
    out: Tensor,
    lse: Tensor,
    factors: Tensor,
    starts: Tensor | None,
    length: int,
    dropout: float,
    scale: float,
    causal: bool,
) -> Tensor:
    """Return the gradient (N, 3, H, D) of qkv."""
    config = kernel_config(length, qkv.shape[-1])
    return run_backward(gradient, qkv, out, lse, factors, starts, length, dropout, scale, causal, config)


@_backward.register_fake
def _(gradient: Tensor, qkv: Tensor, *arguments: Any) -> Tensor:
    return qkv.new_empty(qkv.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    qkv, factors, starts, *ctx.settings = inputs
    ctx.save_for_backward(qkv, *output, factors, starts)


def _differentiate(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return (_backward(gradient, *ctx.saved_tensors, *ctx.settings), *[None] * 6)


_forward.register_autograd(_differentiate, setup_context=_save)


def run_forward(
    qkv: Tensor,
    factors: Tensor,
    starts: Tensor | None,
    length: int,
    dropout: float,
    scale: float,
    causal: bool,
    config: KernelConfig,
) -> tuple[Tensor, Tensor]:
    """Launch the forward kernel."""
    from regard.nn.fast import dropout_attention_kernels as kernels

    qkv = qkv.contiguous()
    tokens, _, heads, width = qkv.shape
    out, lse = qkv.new_empty(tokens, heads, width), qkv.new_empty(heads, tokens, dtype=torch.float32)
    sequences = tokens // length if starts is None else len(starts) - 1
    constants = _constants(qkv, dropout, causal)
    with torch.cuda.device(qkv.get_device()):
        kernels.forward[(sequences * heads * -(-length // config.forward.rows),)](
            *(qkv, out, lse, factors, starts, length, tokens, scale * math.log2(math.e)),
            **constants,
            **_options(config.forward, length, starts),
            SINGLE=length <= config.forward.columns,
        )
    return out, lse


def run_backward(
    gradient: Tensor,
    qkv: Tensor,
    out: Tensor,
    lse: Tensor,
    factors: Tensor,
    starts: Tensor | None,
    length: int,
    dropout: float,
    scale: float,
    causal: bool,
    config: KernelConfig,
) -> Tensor:
    """Launch the backward kernels."""
    from regard.nn.fast import dropout_attention_kernels as kernels

    gradient, qkv = gradient.contiguous(), qkv.contiguous()
    tokens, _, heads, width = qkv.shape
    result = torch.empty_like(qkv)
    sequences = tokens // length if starts is None else len(starts) - 1
    single = length <= config.backward.columns and config.queries is None
    delta = None if single else torch.empty_like(lse)
    partial = None if single or config.queries else qkv.new_empty(heads, tokens, width, dtype=torch.float32)
    numbers = length, tokens, scale, scale * math.log2(math.e)
    constants = _constants(qkv, dropout, causal)
    with torch.cuda.device(qkv.get_device()):
        if delta is not None:
            rows = 128
            kernels.row_sums[(-(-tokens // rows) * heads,)](
                *(out, gradient, delta, tokens),
                **{"HEADS": heads, "WIDTH": width, "EVEN": tokens % rows == 0, "ROWS": rows},
            )
        blocks = 1 if config.queries is None else -(-length // config.backward.columns)
        kernels.backward[(sequences * heads * blocks,)](
            *(qkv, out, gradient, lse, delta, factors, starts, partial, result, *numbers),
            **constants,
            **_options(config.backward, length, starts),
            SINGLE=single,
            QUERIES=config.queries is None,
        )
        if config.queries is not None:
            kernels.query_backward[(sequences * heads * -(-length // config.queries.rows),)](
                *(qkv, gradient, lse, delta, factors, starts, result, *numbers),
                **constants,
                **_options(config.queries, length, starts),
            )
    return result


def _constants(qkv: Tensor, dropout: float, causal: bool) -> dict[str, Any]:
    threshold = int(dropout * WORD) - WORD // 2  # a weight is dropped if the product of its factors is below
    shape = {"HEADS": qkv.shape[2], "WIDTH": qkv.shape[3], "CAUSAL": causal}
    return {**shape, "THRESHOLD": threshold, "RESCALE": 1 / (1 - dropout)}


def _options(blocks: Blocks, length: int, starts: Tensor | None) -> dict[str, Any]:
    return {
        "EVEN": starts is None and length % blocks.rows == 0 and length % blocks.columns == 0,
        "ROWS": blocks.rows,
        "COLUMNS": blocks.columns,
        "num_warps": blocks.num_warps,
        "num_stages": blocks.num_stages,
    }
