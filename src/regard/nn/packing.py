"""Matrices laid out anew for a processor: products with a few rows, as in decoding, are then up to twice as fast.

Knows linear maps and MKL's packed products. Knows no models, and changes none: inside `with Packing():` a matrix that
is multiplied with as many rows a second time is packed, and its packed copy is used from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["Packing"]

ROWS = range(2, 65)  # one row waits for memory whatever is done, and many rows are fast as they are
LEAST = 1 << 16  # numbers of a matrix


class Packing(TorchFunctionMode):
    """Of this thread, without gradients, for float32 on a processor; elsewhere nothing changes.

    Weights must stay as they are inside. The copies are as large as the matrices and go with the object.
    """

    def __init__(self) -> None:
        super().__init__()
        self.packs: dict[tuple[int, int], tuple[Tensor, Tensor | None]] = {}  # the matrix is kept: its id stays its own

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is F.linear and not kwargs:
            return self._linear(*args)
        return func(*args, **(kwargs or {}))

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        rows = x.numel() // x.shape[-1]
        if rows not in ROWS or not _packable(x, weight):
            return F.linear(x, weight, bias)
        place = id(weight), rows
        if place not in self.packs:
            self.packs[place] = weight, None
            return F.linear(x, weight, bias)
        _, packed = self.packs[place]
        if packed is None:
            packed = torch.ops.mkl._mkl_reorder_linear_weight(weight.detach(), rows)
            self.packs[place] = weight, packed
        found: Tensor = torch.ops.mkl._mkl_linear(x.reshape(rows, -1), packed, weight, bias, rows)
        return found.view(*x.shape[:-1], -1)


def _packable(x: Tensor, weight: Tensor) -> bool:
    return (
        torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
        and weight.numel() >= LEAST
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and not torch.is_grad_enabled()
    )
