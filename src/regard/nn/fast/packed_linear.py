"""Weight matrices in oneDNN's packed layout on a CPU, by a context manager that replaces `F.linear`.

Products with a few rows, as in decoding, take half to three quarters of the time. Inside `with PackedLinear():` a
matrix that is multiplied with a few rows is packed, and the packed copy is used from then on. Models are not changed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.nn.fast.inference_layers import supports_packing

MAX_ROWS = 64  # more rows are fast without packing
MIN_ELEMENTS = 1 << 16  # of a matrix


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
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return result

    def _packed(self, weight: Tensor) -> Tensor | None:
        """Return the packed copy, or None before `patience` products."""
        key = id(weight)
        if key not in self.packs:
            self.uses[key] = self.uses.get(key, 0) + 1
            if self.uses[key] <= self.patience:
                return None
            self.packs[key] = weight, torch.ops.mkldnn._reorder_linear_weight(weight.detach(), 1)
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
