"""A decoding step for a single row on a GPU, in five Triton kernels per layer: launching kernels dominates such a step.

Buys, with CUDA graphs, 3,531 tokens/s of GPT-2 small in bf16 on an H200, where single steps of transformers reach 149
(benchmarks/results/generate-cuda.json). For pre-norm stacks and a static cache. `supports_single_row` checks that
Triton is installed and works.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.attention import HALF, FusedProjection
from regard.nn.block import ACTIVATIONS, Block
from regard.nn.cache import DecoderState, KVCache
from regard.nn.embedding import TextEmbedding
from regard.nn.fast.static_cache import StaticKVCache
from regard.nn.positions import LearnedPositions
from regard.nn.stack import Stack

__all__ = ["BlockSizes", "SingleRowKernels", "supports_single_row"]

LONGEST = 16384  # numbers of a vector that a program holds as a whole
HEAD_WIDTHS = (16, 32, 64, 128)
KINDS = (torch.float32, *HALF)

_names: dict[Callable[[Tensor], Tensor], str] = {ACTIVATIONS[name]: name for name in ("relu", "gelu", "gelu-tanh")}


@dataclass(frozen=True)
class BlockSizes:
    """How work is cut into programs; all are powers of two but the first. The results do not depend on it."""

    programs: int = 264  # of a product, at least, where it has so many outputs: two a multiprocessor of an H200
    rows: int = 16  # outputs of a program, at most
    warps: int = 4  # of a product's program, at least
    each: int = 64  # weights of a thread
    look: int = 8192  # numbers of the keys that a head reads at once
    look_warps: int = 8

    def of_product(self, outputs: int, inputs: int) -> tuple[int, int, int]:
        """The outputs of a program, the inputs filled up to a power of two, and the warps."""
        block = max(_power(inputs), 16)
        rows = min(_power(outputs // self.programs + 1) // 2, self.rows, LONGEST // block)
        rows = max(rows, 1)
        return rows, block, min(max(rows * block // (32 * self.each), self.warps), 8)


def supports_single_row(stack: Stack, embedding: TextEmbedding | None = None) -> bool:
    """Whether the kernels serve this stack, and this embedding, beyond what `can_go_straight` asks for."""
    parts: list[nn.Module] = [stack] if embedding is None else [stack, embedding]
    first, *others = [parameter for part in parts for parameter in part.parameters()]
    alike = first.dtype in KINDS and all((one.dtype, one.device) == (first.dtype, first.device) for one in others)
    if not (alike and all(one.is_contiguous() for one in (first, *others))):
        return False
    known = stack.relative is None and _is_norm(stack.norm) and all(_is_known(block) for block in stack.layers)
    known = known and (embedding is None or _is_plain(embedding))
    return known and _works(first.device, first.dtype)


class SingleRowKernels:
    """A stack's step for one row. Weights are looked up once: do not replace them."""

    def __init__(self, stack: Stack, sizes: BlockSizes | None = None) -> None:
        self.sizes = sizes or BlockSizes()
        self.layers = [_LayerKernels(block, self.sizes) for block in stack.layers if isinstance(block, Block)]
        self.norm = stack.norm

    def __call__(self, x: Tensor, state: DecoderState) -> Tensor:
        """The vector (1, W) of the token that `state` has room for, to the last hidden state (1, W)."""
        assert isinstance(self.norm, nn.LayerNorm)
        norm = self.norm
        return F.layer_norm(self._through(x, state), norm.normalized_shape, norm.weight, norm.bias, norm.eps)

    def logits(self, x: Tensor, state: DecoderState, weight: Tensor) -> Tensor:
        """The same, and the last hidden state's product with `weight` (V, W) in the kernel of the norm: (1, V)."""
        last = _Product(weight, None, norm=self.norm, sizes=self.sizes)
        x = self._through(x, state)
        with _at(x.device):
            return last(x)

    def embed(self, embedding: TextEmbedding, tokens: Tensor, places: Tensor) -> Tensor:
        """The vector (1, W) of the token (1,) at its place (1,), or at the last one where it stands behind that."""
        words, positions = embedding.tokens.weight, embedding.positions
        assert isinstance(positions, LearnedPositions)
        width = words.shape[1]
        out = words.new_empty(1, width)
        with _at(words.device):
            _kernels().embed[(1,)](
                *(tokens, places, words, positions.weight, out, positions.count - 1, positions.offset),
                WIDTH=width,
                BLOCK=_power(width),
            )
        return out

    def _through(self, x: Tensor, state: DecoderState) -> Tensor:
        with _at(x.device):
            for layer, held in zip(self.layers, state.cache.layers, strict=True):
                x = layer(x, held.self_attention)
        return x


class _LayerKernels:
    def __init__(self, block: Block, sizes: BlockSizes) -> None:
        own, ffn = block.attention, block.ffn
        project, output, inner, outer = _linear(own.project), _linear(own.output), ffn.inner, ffn.outer
        self.project = _Product(project.weight, project.bias, norm=block.attended.norm, sizes=sizes)
        self.output = _Product(output.weight, output.bias, sizes=sizes)
        self.inner = _Product(
            inner.weight, inner.bias, norm=block.fed.norm, activation=_names[ffn.activation], sizes=sizes
        )
        self.outer = _Product(outer.weight, outer.bias, sizes=sizes)
        self.heads, self.sizes, self.width = own.heads, sizes, output.in_features // own.heads
        self.scale = self.width**-0.5 if own.scale is None else own.scale

    def __call__(self, x: Tensor, pairs: KVCache) -> Tensor:
        x = self.output(self._look(self.project(x), pairs), before=x)
        return self.outer(self.inner(x), before=x)

    def _look(self, projected: Tensor, pairs: KVCache) -> Tensor:
        assert isinstance(pairs, StaticKVCache), "a store of a fixed size holds the row's keys and values"
        out = projected.new_empty(1, self.heads * self.width)
        _kernels().look[(self.heads,)](
            *(projected, pairs.keys, pairs.values, pairs.places, out, self.scale, pairs.keys.stride(1), pairs.span),
            HEADS=self.heads,
            WIDTH=self.width,
            BLOCK=self.sizes.look // self.width,
            num_warps=self.sizes.look_warps,
        )
        return out


class _Product:
    """before + activation(weight norm(x) + bias), in one kernel; what is None is left out."""

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
        self.rows, self.block, self.warps = sizes.of_product(*weight.shape)

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


def _is_known(block: nn.Module) -> bool:
    if not isinstance(block, Block) or block.has_cross_attention or block.ffn.gate is not None:
        return False
    own, ffn, linear = block.attention, block.ffn, (nn.Linear, FusedProjection)
    if not (isinstance(own.project, FusedProjection) and isinstance(own.output, linear) and own.score is None):
        return False
    inner = own.output.in_features
    return (
        block.attended.first
        and block.fed.first
        and _is_norm(block.attended.norm)
        and _is_norm(block.fed.norm)
        and inner % own.heads == 0
        and inner // own.heads in HEAD_WIDTHS
        and max(own.project.in_features, inner, ffn.outer.in_features) <= LONGEST
        and ffn.activation in _names
    )


def _is_norm(module: nn.Module) -> bool:
    return isinstance(module, nn.LayerNorm) and module.weight is not None and module.bias is not None


def _is_plain(embedding: TextEmbedding) -> bool:
    """Whether a token's vector and its place's are all there is."""
    more = embedding.segments is not None or embedding.norm is not None or embedding.scale != 1.0
    return not more and not embedding.training and type(embedding.positions) is LearnedPositions


def _linear(module: nn.Module) -> nn.Linear:
    assert isinstance(module, nn.Linear)
    return module


@cache
def _works(device: torch.device, kind: torch.dtype) -> bool:
    """Whether a small kernel does what it should: Triton may be absent, lack a compiler, or not know the device."""
    if importlib.util.find_spec("triton") is None:
        return False
    number = torch.ones(1, dtype=torch.long, device=device)
    words = torch.arange(48, device=device).view(3, 16).to(kind)
    out = torch.zeros(16, dtype=kind, device=device)
    try:
        with _at(device):
            _kernels().embed[(1,)](number, number, words, words, out, 1, 1, WIDTH=16, BLOCK=16)
        return torch.equal(out, words[1] + words[2])
    except Exception:  # of whatever kind: the other way always works
        return False


def _kernels() -> Any:
    """Imported when first used: without Triton it cannot be."""
    from regard.nn.fast import single_row_kernels as one_row_kernels

    return one_row_kernels


def _at(device: torch.device) -> AbstractContextManager[object]:
    """Kernels start on the current device, so it must be the tensors' one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _power(number: int) -> int:
    """The least power of two that is not below `number`."""
    return 1 << max(number - 1, 0).bit_length()
