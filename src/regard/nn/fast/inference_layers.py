"""Copies of a model's Transformer layers that only compute, with weights packed or quantized for the CPU.

`optimize_for_inference` returns a model whose layers have oneDNN's packed weights (float32), or 8-bit weights with one
scale per output and activations that are quantized row by row as they come (int8). All other modules are shared with
the original model, which does not change. A row's result never depends on the other rows of the batch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, TypeGuard, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn import recording
from regard.nn.attention import Attention, FusedProjection
from regard.nn.block import ACTIVATIONS, Block, FeedForward, ParallelBlock, TransformerLayer
from regard.nn.fast.fused_layer import Function, FusedLayer, norm_function
from regard.nn.layer import Layer
from regard.nn.masks import Context, Layout, Packed
from regard.nn.rotary import Rotary
from regard.nn.stack import Stack

ROWS = 512  # for which oneDNN packs a matrix; other numbers of rows are nearly as fast
ROW_TRAILER = 8  # bytes of the step and the minimum behind a quantized row
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

    def replace(module: nn.Module) -> nn.Module | None:
        if isinstance(module, Layer):
            return _layer(module, linear_class)
        if type(module) is Stack:
            twin = _with_children(module, replace)
            return InferenceStack(twin) if any(map(_is_fusible, twin.layers)) else twin
        return None

    return _with_children(model, replace)


class OneDnnLinear(nn.Module):
    """`nn.Linear` followed by an activation, in float32, with oneDNN's packed weights."""

    def __init__(self, linear: nn.Linear, activation: str | None = None) -> None:
        super().__init__()
        self.product = onednn_product(linear.weight.detach(), linear.bias, activation)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x)


def onednn_product(weight: Tensor, bias: Tensor | None, activation: str | None = None) -> Function:
    """Return activation(x @ weight.T + bias) as a function, with a packed copy of the weight."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
    post, algorithm = ("none", "") if activation is None else FUSED_ACTIVATIONS[activation]
    linear: Any = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: linear(x, packed, bias, post, [], algorithm)


class Int8Linear(nn.Module):
    """`nn.Linear` followed by an activation, with products of 8-bit numbers.

    Weights have one scale per output: w = s_n * i, with i from -127 to 127. Each row of x is quantized between its own
    minimum and maximum: x = m_r + d_r * q, with q from 0 to 255. Hence x w = d_r * s_n * (q i) + m_r * s_n * sum(i).
    """

    def __init__(self, linear: nn.Linear, activation: str | None = None) -> None:
        super().__init__()
        weight = linear.weight.detach()
        scales = (weight.abs().amax(1) / int8_range()).clamp_(min=torch.finfo(torch.float32).tiny)
        bias = torch.zeros(len(weight)) if linear.bias is None else linear.bias.detach()
        self.product = int8_product((weight / scales[:, None]).round_().to(torch.int8), scales, bias, activation)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x)


def int8_product(integers: Tensor, scales: Tensor, bias: Tensor, activation: str | None = None) -> Function:
    """Return the function of an `Int8Linear` with a weight scales[:, None] * integers."""
    features = integers.shape[1]
    sums = integers.sum(1, dtype=torch.int32) * scales
    zeros = torch.zeros(len(integers), dtype=torch.int32)
    # The zeros are the weights of the step and the minimum, which follow the numbers of a quantized row.
    packed: Tensor = torch.ops.onednn.qlinear_prepack(F.pad(integers, (0, ROW_TRAILER)), [ROWS, features + ROW_TRAILER])
    linear: Any = torch.ops.onednn.qlinear_pointwise.default

    def product(x: Tensor) -> Tensor:
        quantized, step, minimum = quantize_rows(x if x.ndim == 2 else x.reshape(-1, features))
        result: Tensor = linear(quantized, 1.0, 0, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], "")
        # In place, because new memory costs more than a pass, and in two passes.
        torch.addcmul(bias, result, step, out=result).addcmul_(minimum, sums)
        if activation is not None:
            _apply_in_place(activation, result)
        return result if x.ndim == 2 else result.view(*x.shape[:-1], -1)

    return product


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize each row of x (M, K) to 0 ... 255: x = minimum + step * quantized, with step and minimum (M, 1).

    The bytes of step and minimum follow the numbers, so that the quantized rows are (M, K + ROW_TRAILER).
    """
    quantized = torch.ops.quantized.embedding_bag_byte_prepack.default(x)
    width = x.shape[1]
    if width % 4:
        step, minimum = quantized[:, width:].contiguous().view(torch.float32).split_with_sizes((1, 1), 1)
    else:
        _, step, minimum = quantized.view(torch.float32).split_with_sizes((width // 4, 1, 1), 1)
    return quantized, step, minimum


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


class InferenceStack(Stack):
    """A stack that computes texts without module calls, unless somebody looks on: with `record`, or with hooks."""

    def __init__(self, stack: Stack) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(stack.__dict__)
        self.fused = [_TextLayer(layer) if _is_fusible(layer) else None for layer in self.layers]
        self.final_norm = norm_function(self.norm)
        modules = list(self.modules())
        self.hooks = [hooks for one in modules for hooks in (one._forward_hooks, one._forward_pre_hooks)]

    def states(self, x: Tensor, context: Context | Layout) -> Iterator[Tensor]:
        context = Context.of(context)
        if recording.is_recording() or any(self.hooks) or context.cache is not None or context.memory is not None:
            yield from super().states(x, context)
            return
        depth, bias, positions = len(self.fused), self._bias(x, context.layout, None), context.output_positions
        texts = _Texts(context, bias, x)
        yield x
        for index, fused in enumerate(self.fused):
            select = context.select if positions is not None and index == depth - 1 else None
            if fused is None:
                x = self.layers[index](x, context.for_layer(index, of=depth, bias=bias))
            else:
                x = fused(x, texts, select)
            if index == depth - 1:
                x = self.final_norm(x)
            yield x


class _Texts:
    """What the layers of a pass share: the layout, the bias of the scores, and the angles of rotary positions."""

    def __init__(self, context: Context, bias: Tensor | None, x: Tensor) -> None:
        self.layout, self.bias = context.layout, bias
        self.positions = partial(context.layout.positions, x, context.start)
        self.angles: dict[Rotary, tuple[Tensor, Tensor]] = {}

    def rotate(self, rotary: Rotary, x: Tensor) -> Tensor:
        if rotary not in self.angles:
            self.angles[rotary] = rotary.angles(self.positions())
        return rotary.rotate(x, *self.angles[rotary])


class _TextLayer:
    """A layer with the attention of complete texts."""

    def __init__(self, block: Block | ParallelBlock) -> None:
        self.layer, self.attention = FusedLayer(block, _product), block.attention

    def __call__(self, x: Tensor, texts: _Texts, select: Function | None) -> Tensor:
        def attend(projected: Tensor) -> Tensor:
            query, key, value = self.layer.split_heads(projected, texts.rotate)
            layout, bias = texts.layout, texts.bias
            if isinstance(layout, Packed):
                return self.attention.attend_packed(query, key, value, layout, layout, bias).flatten(-2)
            query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
            return self.attention.attend_padded(query, key, value, layout, bias, None).transpose(1, 2).flatten(-2)

        return self.layer(x, attend, select=select)


def _is_fusible(layer: nn.Module) -> TypeGuard[Block | ParallelBlock]:
    if type(layer) not in (Block, ParallelBlock) or getattr(layer, "has_cross_attention", False):
        return False
    assert isinstance(layer, TransformerLayer)
    attention = layer.attention
    return (
        type(attention) is Attention
        and isinstance(attention.project, InferenceProjection)
        and type(layer.ffn) is FeedForward
        and (attention.positions is None or type(attention.positions) is Rotary)
    )


def _product(module: nn.Module) -> Function:
    return (module.linear if isinstance(module, InferenceProjection) else module).forward


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
