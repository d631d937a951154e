"""A decoding step for a single row on a GPU in five Triton kernels per layer, since kernel launches dominate it.

For families with a pre-norm stack of layer norms and no gate, such as GPT-2: GPT-2 small in bf16 on an H200, with CUDA
graphs, generates 2.23 times as fast as with the recorded `fused_step` (benchmarks/results/fast_paths-cuda.json,
2026-11-19). A layer is four `_Product`s around one `attend`, as in `fused_layer`: a gate would be an activation of two
halves of `inner`, and grouped queries an argument of `attend`.

The static cache keeps keys and values at fixed addresses. `supports_single_row` also checks that Triton is installed
and works.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.attention import FusedProjection
from regard.nn.block import ACTIVATIONS, Block
from regard.nn.cache import DecoderState, KVCache, StackCache
from regard.nn.embedding import LearnedPositions, TextEmbedding
from regard.nn.kernels import HALF
from regard.nn.stack import Stack


class StaticKVCache(KVCache):
    """The cache of one attention: each row writes to its own position and attends to the first `span` positions."""

    def __init__(self, stored: tuple[Tensor, Tensor], rows: Tensor, positions: Tensor, span: int) -> None:
        super().__init__()
        self.keys, self.values = stored
        self.rows, self.positions, self.span = rows, positions, span

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write the key and value (B, H, 1, D) of each row; return the first `span` positions, unused ones included."""
        self.keys[self.rows, :, self.positions] = key[:, :, 0]
        self.values[self.rows, :, self.positions] = value[:, :, 0]
        return self.keys[:, :, : self.span], self.values[:, :, : self.span]


class StaticCache:
    """The keys and values (B, H, S, D) of all layers, and `positions` (B,), where each row writes next.

    There is one position more than `room`; no span includes it, so values written there are never read.
    """

    def __init__(
        self, depth: int, *, rows: int, heads: int, room: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.room = room
        shape = rows, heads, room + 1, width
        self.pairs = [
            (torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, device=device))
            for _ in range(depth)
        ]
        self.rows = torch.arange(rows, device=device)
        self.positions = torch.zeros(rows, dtype=torch.long, device=device)
        self.order = torch.arange(room, device=device)

    def load(self, cache: StackCache, lengths: Tensor) -> None:
        """Copy the cache of prompts that are padded on the right; row i has lengths[i] tokens."""
        for (keys, values), layer in zip(self.pairs, cache.layers, strict=True):
            assert layer.self_attention.key is not None and layer.self_attention.value is not None
            keys[:, :, : cache.length].copy_(layer.self_attention.key)
            values[:, :, : cache.length].copy_(layer.self_attention.value)
        self.positions.copy_(lengths)

    def cache(self, span: int) -> StackCache:
        """Return a cache of the first `span` positions."""
        cache = StackCache(len(self.pairs))
        for layer, pair in zip(cache.layers, self.pairs, strict=True):
            layer.self_attention = StaticKVCache(pair, self.rows, self.positions, span)
        return cache

    def mask(self, span: int) -> Tensor:
        """Return the mask (B, S) over the first `span` positions for the token at each row's position."""
        return self.order[:span] <= self.positions[:, None]


MAX_WIDTH = 16384  # of a vector that one program loads completely
HEAD_WIDTHS = (16, 32, 64, 128)
DTYPES = (torch.float32, *HALF)
_activation_names: dict[Callable[[Tensor], Tensor], str] = {
    ACTIVATIONS[name]: name for name in ("relu", "gelu", "gelu-tanh")
}


@dataclass(frozen=True)
class BlockSizes:
    """How work is divided among Triton programs, without effect on the results. All but the first are powers of two."""

    programs: int = 264  # minimum per product if it has enough outputs: two per multiprocessor of an H200
    rows: int = 16  # maximum outputs per program
    warps: int = 4  # minimum per program of a product
    weights_per_thread: int = 64
    attention: int = 8192  # elements of the keys that a head loads at once
    attention_warps: int = 8

    def for_product(self, outputs: int, inputs: int) -> tuple[int, int, int]:
        """Return the outputs per program, the inputs rounded up to a power of two, and the warps."""
        block = max(_next_power_of_two(inputs), 16)
        rows = min(_next_power_of_two(outputs // self.programs + 1) // 2, self.rows, MAX_WIDTH // block)
        rows = max(rows, 1)
        return rows, block, min(max(rows * block // (32 * self.weights_per_thread), self.warps), 8)


def supports_single_row(stack: Stack, embedding: TextEmbedding | None = None) -> bool:
    """Whether the kernels support this stack and embedding, for which `supports_fused_step` must hold too."""
    parts: list[nn.Module] = [stack] if embedding is None else [stack, embedding]
    first, *others = [parameter for part in parts for parameter in part.parameters()]
    alike = first.dtype in DTYPES and all(
        (other.dtype, other.device) == (first.dtype, first.device) for other in others
    )
    if not (alike and all(parameter.is_contiguous() for parameter in (first, *others))):
        return False
    supported = (
        stack.relative is None and _is_norm(stack.norm) and all(_supports_block(block) for block in stack.layers)
    )
    supported = supported and (embedding is None or _is_plain(embedding))
    return supported and _works(first.device, first.dtype)


class SingleRowKernels:
    """A decoding step of a stack for one row. Weights are looked up once: do not replace them."""

    def __init__(self, stack: Stack, sizes: BlockSizes | None = None) -> None:
        self.sizes = sizes or BlockSizes()
        self.layers = [_LayerKernels(cast(Block, block), self.sizes) for block in stack.layers]
        self.norm = stack.norm

    def __call__(self, x: Tensor, state: DecoderState) -> Tensor:
        """Map the vector (1, W) of the token that `state` was extended by to the last hidden state (1, W)."""
        assert isinstance(self.norm, nn.LayerNorm)
        norm = self.norm
        return F.layer_norm(self._run_layers(x, state), norm.normalized_shape, norm.weight, norm.bias, norm.eps)

    def logits(self, x: Tensor, state: DecoderState, weight: Tensor) -> Tensor:
        """Return the product (1, V) of the last hidden state and `weight` (V, W), fused with the final norm."""
        last = _Product(weight, None, norm=self.norm, sizes=self.sizes)
        x = self._run_layers(x, state)
        with _at(x.device):
            return last(x)

    def embed(self, embedding: TextEmbedding, tokens: Tensor, position: Tensor) -> Tensor:
        """Return the vector (1, W) of the token (1,) at its position (1,), which is clamped to the last one."""
        table, positions = embedding.tokens.weight, embedding.positions
        assert isinstance(positions, LearnedPositions)
        width = table.shape[1]
        out = table.new_empty(1, width)
        with _at(table.device):
            _kernels().embed[(1,)](
                *(tokens, position, table, positions.weight, out, positions.count - 1, positions.offset),
                WIDTH=width,
                BLOCK=_next_power_of_two(width),
            )
        return out

    def _run_layers(self, x: Tensor, state: DecoderState) -> Tensor:
        with _at(x.device):
            for layer, layer_cache in zip(self.layers, state.cache.layers, strict=True):
                x = layer(x, layer_cache.self_attention)
        return x


class _LayerKernels:
    def __init__(self, block: Block, sizes: BlockSizes) -> None:
        own, ffn = block.attention, block.ffn
        project, output, inner, outer = _linear(own.project), _linear(own.output), ffn.inner, ffn.outer
        self.project = _Product(project.weight, project.bias, norm=block.attention_residual.norm, sizes=sizes)
        self.output = _Product(output.weight, output.bias, sizes=sizes)
        self.inner = _Product(
            inner.weight,
            inner.bias,
            norm=block.ffn_residual.norm,
            activation=_activation_names[ffn.activation],
            sizes=sizes,
        )
        self.outer = _Product(outer.weight, outer.bias, sizes=sizes)
        self.heads, self.sizes, self.width = own.heads, sizes, output.in_features // own.heads
        self.scale = self.width**-0.5 if own.scale is None else own.scale

    def __call__(self, x: Tensor, pairs: KVCache) -> Tensor:
        x = self.output(self._attend(self.project(x), pairs), before=x)
        return self.outer(self.inner(x), before=x)

    def _attend(self, projected: Tensor, pairs: KVCache) -> Tensor:
        assert isinstance(pairs, StaticKVCache), "single-row kernels need a static cache"
        out = projected.new_empty(1, self.heads * self.width)
        _kernels().attend[(self.heads,)](
            *(projected, pairs.keys, pairs.values, pairs.positions, out, self.scale, pairs.keys.stride(1), pairs.span),
            HEADS=self.heads,
            WIDTH=self.width,
            BLOCK=self.sizes.attention // self.width,
            num_warps=self.sizes.attention_warps,
        )
        return out


class _Product:
    """before + activation(weight norm(x) + bias) in one kernel; parts that are None are skipped."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        *,
        sizes: BlockSizes,
        norm: nn.Module | None = None,
        activation: str = "none",
    ) -> None:
        self.weight, self.bias, self.activation = weight, bias, activation
        self.gain = self.shift = None
        self.epsilon = 0.0
        if norm is not None:
            assert isinstance(norm, nn.LayerNorm)
            self.gain, self.shift, self.epsilon = norm.weight, norm.bias, norm.eps
        self.rows, self.block, self.warps = sizes.for_product(*weight.shape)

    def __call__(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        outputs, inputs = self.weight.shape
        out = x.new_empty(1, outputs)
        _kernels().product[(-(-outputs // self.rows),)](
            *(x, self.gain, self.shift, self.weight, self.bias, before, out),
            *(self.epsilon, self.weight.stride(0), outputs),
            INPUTS=inputs,
            ROWS=self.rows,
            BLOCK=self.block,
            ACTIVATION=self.activation,
            num_warps=self.warps,
        )
        return out


def _supports_block(block: nn.Module) -> bool:
    if type(block) is not Block or block.has_cross_attention or block.ffn.gated:
        return False
    own, ffn, linear = block.attention, block.ffn, (nn.Linear, FusedProjection)
    if not (isinstance(own.project, FusedProjection) and isinstance(own.output, linear) and own.score is None):
        return False
    if len(set(own.project.sizes)) > 1 or own.window is not None:
        return False
    others = (
        own.positions,
        own.query_norm,
        own.key_norm,
        block.attention_residual.post_norm,
        block.ffn_residual.post_norm,
    )
    if any(module is not None for module in others):
        return False
    inner = own.output.in_features
    return (
        block.attention_residual.first
        and block.ffn_residual.first
        and _is_norm(block.attention_residual.norm)
        and _is_norm(block.ffn_residual.norm)
        and inner % own.heads == 0
        and inner // own.heads in HEAD_WIDTHS
        and max(own.project.in_features, inner, ffn.outer.in_features) <= MAX_WIDTH
        and ffn.activation in _activation_names
    )


def _is_norm(module: nn.Module) -> bool:
    return isinstance(module, nn.LayerNorm) and module.weight is not None and module.bias is not None


def _is_plain(embedding: TextEmbedding) -> bool:
    """Whether the embedding is only the sum of a token vector and a position vector."""
    more = embedding.segments is not None or embedding.norm is not None or embedding.scale != 1.0
    return not more and not embedding.training and type(embedding.positions) is LearnedPositions


def _linear(module: nn.Module) -> nn.Linear:
    assert isinstance(module, nn.Linear)
    return module


@cache
def _works(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a small kernel works: Triton may be missing, lack a compiler, or not support the device."""
    if importlib.util.find_spec("triton") is None:
        return False
    index = torch.ones(1, dtype=torch.long, device=device)
    table = torch.arange(48, device=device).view(3, 16).to(dtype)
    out = torch.zeros(16, dtype=dtype, device=device)
    try:
        with _at(device):
            _kernels().embed[(1,)](index, index, table, table, out, 1, 1, WIDTH=16, BLOCK=16)
        return torch.equal(out, table[1] + table[2])
    except Exception:  # Triton raises errors of many types; the caller has a fallback
        return False


def _kernels() -> Any:
    """Import the kernels at first use, since Triton may be missing."""
    from regard.nn.fast import triton_kernels

    return triton_kernels


def _at(device: torch.device) -> AbstractContextManager[object]:
    """Select the device of the tensors, since kernels run on the current device."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _next_power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least `number`."""
    return 1 << max(number - 1, 0).bit_length()
