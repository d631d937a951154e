"""Copies of a model's Transformer layers that only compute, with weights packed or quantized for the CPU.

`optimize_for_inference` returns a model whose layers have oneDNN's packed weights (float32), or 8-bit weights with one
scale per output and activations that are quantized row by row as they come (int8), and that compute complete texts
without calls of modules (`fused_layer`). All other modules are shared with the original model, which does not change.
A row's result never depends on the other rows of the batch.

For all families with layers of `nn.block`. MiniLM on two cores embeds 1.27 times as many SST-2 sentences per second as
transformers in float32, and 2.7 times as many in int8 (benchmarks/results/embed.json).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeGuard, TypeVar

from torch import Tensor, nn

from regard.nn import recording
from regard.nn.attention import Attention, FusedProjection
from regard.nn.block import ACTIVATIONS, Block, FeedForward, ParallelBlock, TransformerLayer
from regard.nn.fast.fused_layer import Function, FusedLayer, Texts, identity, norm_function
from regard.nn.fast.int8_weights import int8_range, onednn_int8_product, quantize_matrix, supports_int8
from regard.nn.fast.packed_linear import FUSED_ACTIVATIONS, pack_matrix, packed_product, supports_packing
from regard.nn.layer import Layer
from regard.nn.masks import Context, Layout
from regard.nn.rotary import Rotary
from regard.nn.stack import Stack

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
        self.product = packed_product(pack_matrix(linear.weight), linear.bias, activation)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x)


class Int8Linear(nn.Module):
    """`nn.Linear` followed by an activation, with products of 8-bit numbers, see `int8_weights`."""

    def __init__(self, linear: nn.Linear, activation: str | None = None) -> None:
        super().__init__()
        integers, scales = quantize_matrix(linear.weight.detach(), levels=int8_range())
        bias = None if linear.bias is None else linear.bias.detach()
        self.product = onednn_int8_product(integers, scales, bias, activation)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x)


class InferenceProjection(nn.Module):
    """`FusedProjection` with a linear layer for inference."""

    def __init__(self, linear: nn.Module, sizes: tuple[int, int, int]) -> None:
        super().__init__()
        self.linear, self.sizes = linear, sizes

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = self.linear(x).split(self.sizes, dim=-1)
        return query, key, value


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
        self.fused = [FusedLayer(layer, _product) if _is_fusible(layer) else None for layer in self.layers]
        self.final_norm = norm_function(self.norm)
        modules = list(self.modules())
        self.hooks = [hooks for one in modules for hooks in (one._forward_hooks, one._forward_pre_hooks)]

    def states(self, x: Tensor, context: Context | Layout) -> Iterator[Tensor]:
        context = Context.of(context)
        if recording.is_recording() or any(self.hooks) or context.cache is not None or context.memory is not None:
            yield from super().states(x, context)
            return
        depth, bias, positions = len(self.fused), self._bias(x, context.layout, None), context.output_positions
        texts = Texts(context, bias, x)
        yield x
        for index, fused in enumerate(self.fused):
            select = context.select if positions is not None and index == depth - 1 else None
            if fused is None:
                x = self.layers[index](x, context.for_layer(index, of=depth, bias=bias))
            else:
                x = fused(x, partial(fused.attend, texts), select=select)
            if index == depth - 1:
                x = self.final_norm(x)
            yield x


def _is_fusible(layer: nn.Module) -> TypeGuard[Block | ParallelBlock]:
    if type(layer) not in (Block, ParallelBlock):
        return False
    assert isinstance(layer, TransformerLayer)
    if layer.has_cross_attention:
        return False
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
    twin.activation = identity
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
