"""Weight matrices in oneDNN's packed layout on a CPU: for copies of a model, and for any model in a block.

Inside `with PackedLinear():` a matrix that is multiplied with a few rows is packed, and the packed copy is used from
then on. Models are not changed. For all models in float32: SmolLM2-135M decodes one row in 35 instead of 50 ms a token
(docs/performance.md, "Generation on a CPU").
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

ROWS = 512  # for which a matrix is packed: as fast for one row as a layout for one, and twice as fast for four
# Activations that oneDNN applies to the result of a product: its name and algorithm.
FUSED_ACTIVATIONS = {"relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu-tanh": ("gelu", "tanh")}
MAX_ROWS = 64  # more rows are fast without packing
MIN_ELEMENTS = 1 << 16  # of a matrix


def pack_matrix(weight: Tensor) -> Tensor:
    """Return a copy of a matrix (M, K) in oneDNN's layout."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
    return packed


def packed_product(packed: Tensor, bias: Tensor | None, activation: str | None = None) -> Callable[[Tensor], Tensor]:
    """Return activation(x @ weight.T + bias) as a function of x; the activation is one of `FUSED_ACTIVATIONS`."""
    post, algorithm = ("none", "") if activation is None else FUSED_ACTIVATIONS[activation]
    linear: Any = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: linear(x, packed, bias, post, [], algorithm)


@cache
def supports_packing() -> bool:
    """Whether this build of torch has oneDNN's packed linear layers for this CPU."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    linear = nn.Linear(64, 48)
    x = torch.randn(3, 64)
    try:
        with torch.inference_mode():
            product = packed_product(pack_matrix(linear.weight), linear.bias, "gelu")
            found, expected = product(x), F.gelu(linear(x))
    except (AttributeError, RuntimeError):
        return False
    return bool(torch.allclose(found, expected, atol=1e-5))


class LinearOverride(TorchFunctionMode):
    """Inside the block, calls of `F.linear` in this thread go to `linear`."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is F.linear and not kwargs:
            return self.linear(*args)
        return func(*args, **(kwargs or {}))

    @abstractmethod
    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Compute x @ weight.T + bias. May also be called outside the block."""


class PackedLinear(LinearOverride):
    """Replaces products in this thread without gradients, in float32 on a CPU; others do not change.

    Weights must not change inside the block. The copies are as large as the matrices and are freed with this object.
    """

    def __init__(self, *, patience: int = 1) -> None:
        """Pack a matrix after `patience` products, since packing takes as long as a few of them."""
        super().__init__()
        self.patience = patience
        self.uses: dict[int, int] = {}
        self.packs: dict[int, tuple[Tensor, Tensor]] = {}  # the reference to the weight keeps its id unique

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Compute `F.linear`, with the packed copy if there is one."""
        if not _is_supported(x, weight):
            return F.linear(x, weight, bias)
        packed = self._packed(weight)
        if packed is None:
            return F.linear(x, weight, bias)
        result: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, packed, bias, "none", [], "")
        return result

    def _packed(self, weight: Tensor) -> Tensor | None:
        """Return the packed copy, or None before `patience` products."""
        key = id(weight)
        if key not in self.packs:
            self.uses[key] = self.uses.get(key, 0) + 1
            if self.uses[key] <= self.patience:
                return None
            self.packs[key] = weight, pack_matrix(weight)
        return self.packs[key][1]


def _is_supported(x: Tensor, weight: Tensor) -> bool:
    return (
        weight.numel() >= MIN_ELEMENTS
        and x.numel() <= MAX_ROWS * weight.shape[1]
        and type(weight) in (Tensor, nn.Parameter)  # not a tensor with products of its own
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and not torch.is_grad_enabled()
        and supports_packing()
    )
