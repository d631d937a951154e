"""Copies of a model's Transformer layers that only compute, with weights packed or quantized for the CPU.

`optimize_for_inference` returns a model whose layers have oneDNN's packed weights (float32), or 8-bit weights with one
scale per output and activations that are quantized row by row as they come (int8). All other modules are shared with
the original model, which does not change. A row's result never depends on the other rows of the batch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.attention import FusedProjection
from regard.nn.block import ACTIVATIONS, FeedForward
from regard.nn.layer import Layer

ROWS = 512  # for which oneDNN packs a matrix; other numbers of rows are nearly as fast
FULL_RANGE, REDUCED_RANGE = 127, 63  # of 8-bit weights; reduced where products of neighbors would overflow 16 bits
# Activations that oneDNN applies to the result of a product: its name and algorithm.
FUSED_ACTIVATIONS = {"relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu-tanh": ("gelu", "tanh")}
M = TypeVar("M", bound=nn.Module)


def optimize_for_inference(model: M, precision: str) -> M:
    """Return the model with layers for inference on a CPU; `precision` is fp32 or int8.

    What this CPU or this build of torch does not support stays as it is. The result shares all other weights.
    """
    supported = {"fp32": supports_packing, "int8": supports_int8}
    linear_class = {"fp32": OneDnnLinear, "int8": Int8Linear}[precision]
    if not supported[precision]():
        return model
    return _with_children(model, lambda module: _layer(module, linear_class) if isinstance(module, Layer) else None)


class OneDnnLinear(nn.Module):
    """`nn.Linear` followed by an activation, in float32, with oneDNN's packed weights."""

    def __init__(self, linear: nn.Linear, activation: str | None = None) -> None:
        super().__init__()
        self.weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), ROWS)
        self.bias = linear.bias
        self.post, self.algorithm = ("none", "") if activation is None else FUSED_ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, self.post, [], self.algorithm)
        return result


class Int8Linear(nn.Module):
    """`nn.Linear` followed by an activation, with products of 8-bit numbers.

    Weights have one scale per output: w = s_n * i, with i from -127 to 127. Each row of x is quantized between its own
    minimum and maximum: x = m_r + d_r * q, with q from 0 to 255. Hence x w = d_r * s_n * (q i) + m_r * s_n * sum(i).
    """

    def __init__(self, linear: nn.Linear, activation: str | None = None) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.features = weight.shape[1]
        levels = int8_range()
        self.scales = (weight.abs().amax(1) / levels).clamp_(min=torch.finfo(torch.float32).tiny)
        integers = (weight / self.scales[:, None]).round_()
        self.sums = integers.sum(1) * self.scales
        self.zeros = torch.zeros(len(weight), dtype=torch.int32)
        self.weight: Tensor = torch.ops.onednn.qlinear_prepack(integers.to(torch.int8), [ROWS, self.features])
        bias = torch.zeros(len(weight)) if linear.bias is None else linear.bias
        self.bias = bias.detach()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.features)
        quantized, step, minimum = quantize_rows(rows)
        result: Tensor = torch.ops.onednn.qlinear_pointwise(
            quantized, 1.0, 0, self.weight, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        # In place, because new memory costs more than a pass, and in two passes.
        torch.addcmul(self.bias, result, step, out=result).addcmul_(minimum, self.sums)
        if self.activation is not None:
            _apply_in_place(self.activation, result)
        return result.view(*x.shape[:-1], -1)


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize each row of x (M, K) to 0 ... 255: x = minimum + step * quantized, with step and minimum (M, 1)."""
    packed = torch.ops.quantized.embedding_bag_byte_prepack(x)  # step and minimum follow the numbers of each row
    trailer = packed[:, -8:].contiguous().view(torch.float32)
    return packed[:, :-8], trailer[:, :1], trailer[:, 1:]


class InferenceProjection(nn.Module):
    """`FusedProjection` with a linear layer for inference."""

    def __init__(self, linear: nn.Module, sizes: tuple[int, int, int]) -> None:
        super().__init__()
        self.linear, self.sizes = linear, sizes

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = self.linear(x).split(self.sizes, dim=-1)
        return query, key, value


@cache
def supports_packing() -> bool:
    """Whether this build of torch has oneDNN's packed linear layers for this CPU."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    linear = nn.Linear(64, 48)
    x = torch.randn(3, 64)
    try:
        with torch.inference_mode():
            found, expected = OneDnnLinear(linear, "gelu")(x), F.gelu(linear(x))
    except (AttributeError, RuntimeError):
        return False
    return bool(torch.allclose(found, expected, atol=1e-5))


@cache
def supports_int8() -> bool:
    """Whether this build of torch has 8-bit linear layers for this CPU, and they compute what they should."""
    return int8_range() > 0


@cache
def int8_range() -> int:
    """The largest 8-bit weight with exact products; 0: there are none.

    CPUs without VNNI instructions add pairs of products in 16 bits, which overflow for large weights.
    """
    for levels in (FULL_RANGE, REDUCED_RANGE):
        weight = torch.full((32, 64), levels, dtype=torch.int8)
        x = torch.full((3, 64), 255, dtype=torch.uint8)
        ones, zeros = torch.ones(32), torch.zeros(32, dtype=torch.int32)
        try:
            quantize_rows(torch.randn(2, 64))
            packed = torch.ops.onednn.qlinear_prepack(weight, [ROWS, 64])
            product = torch.ops.onednn.qlinear_pointwise(
                x, 1.0, 0, packed, ones, zeros, None, 1.0, 0, torch.float32, "none", [], ""
            )
        except (AttributeError, RuntimeError):
            return 0
        if bool((product == 64 * 255 * levels).all()):
            return levels
    return 0


def _layer(layer: Layer, linear_class: Callable[..., nn.Module]) -> Layer:
    def replace(module: nn.Module) -> nn.Module | None:
        if isinstance(module, FeedForward):
            return _feed_forward(module, linear_class)
        if isinstance(module, FusedProjection):
            return InferenceProjection(linear_class(module), module.sizes)
        return linear_class(module) if type(module) is nn.Linear else None

    return _with_children(layer, replace)


def _feed_forward(module: FeedForward, linear_class: Callable[..., nn.Module]) -> FeedForward:
    """The activation becomes part of the first layer, unless the layer is gated."""
    name = next((name for name, function in ACTIVATIONS.items() if function is module.activation), None)
    if module.gated or name not in FUSED_ACTIVATIONS:
        return _with_children(module, lambda one: linear_class(one) if type(one) is nn.Linear else None)
    twin = copy.copy(module)
    inner, outer = linear_class(module.inner, name), linear_class(module.outer)
    twin._modules = {**module._modules, "inner": inner, "outer": outer}
    twin.activation = _identity
    return twin


def _with_children(module: M, replace: Callable[[nn.Module], nn.Module | None]) -> M:
    """The module with replaced children, or the module itself if none is replaced. Shared children stay shared."""
    children = dict.fromkeys(child for child in module._modules.values() if child is not None)
    replaced: dict[nn.Module | None, nn.Module] = {}
    for child in children:
        new = replace(child)
        replaced[child] = _with_children(child, replace) if new is None else new
    if all(replaced[child] is child for child in children):
        return module
    twin = copy.copy(module)
    twin._modules = {name: replaced.get(child) for name, child in module._modules.items()}
    return twin


def _identity(x: Tensor) -> Tensor:
    return x


def _apply_in_place(activation: str, x: Tensor) -> None:
    if activation == "relu":
        x.relu_()
    else:
        torch.ops.aten.gelu_(x, approximate=FUSED_ACTIVATIONS[activation][1])
