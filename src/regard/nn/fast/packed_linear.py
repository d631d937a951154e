"""Weight matrices in MKL's packed layout on a CPU, by a context manager that replaces `F.linear`.

Products with a few rows, as in decoding, are up to twice as fast. Inside `with PackedLinear():` a matrix that is
multiplied with a few rows is packed, and the packed copy is used from then on. Models are not changed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

ROWS = range(3, 65)  # one or two rows are limited by memory bandwidth, and many rows are fast without packing
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
    A copy serves one number of rows: 4 or a multiple of 8; smaller inputs are padded.
    """

    def __init__(self, *, patience: int = 1) -> None:
        """Pack a matrix after `patience` products, since packing takes as long as a few of them."""
        super().__init__()
        self.patience = patience
        self.uses: dict[tuple[int, int], int] = {}
        self.packs: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # the reference to the weight keeps its id unique
        self.plain: dict[int, Tensor] = {}  # weights that passed the checks for products with one row

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Compute `F.linear`, with the packed copy if there is one."""
        if id(weight) in self.plain and x.dim() == 2 and len(x) == 1:
            return _matrix_vector(x[0], weight, bias)[None]
        flat = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
        rows = len(flat)
        if (rows != 1 and rows not in ROWS) or not _is_supported(x, weight):
            return F.linear(x, weight, bias)
        if rows == 1:
            self.plain[id(weight)] = weight
            result = _matrix_vector(flat[0], weight, bias)[None]
        else:
            size = 4 if rows <= 4 else -(-rows // 8) * 8
            packed = self._packed(weight, size)
            if packed is None:
                return F.linear(x, weight, bias)
            if size > rows:
                flat = F.pad(flat, (0, 0, 0, size - rows))
            result = torch.ops.mkl._mkl_linear(flat, packed, weight, bias, size)
            if size > rows:
                result = result[:rows]
        return result if x.dim() == 2 else result.view(*x.shape[:-1], -1)

    def _packed(self, weight: Tensor, size: int) -> Tensor | None:
        """Return the packed copy for `size` rows, or None before `patience` products."""
        key = id(weight), size
        if key not in self.packs:
            self.uses[key] = self.uses.get(key, 0) + 1
            if self.uses[key] <= self.patience:
                return None
            self.packs[key] = weight, torch.ops.mkl._mkl_reorder_linear_weight(weight.detach(), size)
        return self.packs[key][1]


def _matrix_vector(vector: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A matrix-vector product, which is slightly faster than a product with one row."""
    return torch.mv(weight, vector) if bias is None else torch.addmv(bias, weight, vector)


def _is_supported(x: Tensor, weight: Tensor) -> bool:
    return (
        torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
        and weight.numel() >= MIN_ELEMENTS
        and type(weight) in (Tensor, nn.Parameter)  # not a tensor with products of its own
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and not torch.is_grad_enabled()
    )
