"""Weight matrices in MKL's packed layout on a CPU.

Buys up to a factor of two for products with a few rows, as in decoding. Inside `with PackedLinear():` a matrix that is
multiplied with a few rows is packed, and the copy is used from then on. Models are not changed.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.linears import LinearOverride

__all__ = ["PackedLinear"]

ROWS = range(3, 65)  # one or two wait for memory whatever is done, and many rows are fast as they are
LEAST = 1 << 16  # numbers of a matrix


class PackedLinear(LinearOverride):
    """Of this thread, without gradients, for float32 on a processor; elsewhere nothing changes.

    Weights must stay as they are inside. The copies are as large as the matrices and go with the object.
    A copy serves one number of rows, so there is one for 4 rows and for each multiple of 8; fewer are filled up.
    """

    def __init__(self, *, patience: int = 1) -> None:
        """A matrix is packed after `patience` products, since packing takes as long as a few of them."""
        super().__init__()
        self.patience = patience
        self.uses: dict[tuple[int, int], int] = {}
        self.packs: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # the matrix is kept: its id stays its own
        self.plain: dict[int, Tensor] = {}  # those that were multiplied with one row: looked at once, for time is short

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """F.linear, with the packed copy where there is one."""
        if id(weight) in self.plain and x.dim() == 2 and len(x) == 1:
            return _vector(x[0], weight, bias)[None]
        flat = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
        rows = len(flat)
        if (rows != 1 and rows not in ROWS) or not _packable(x, weight):
            return F.linear(x, weight, bias)
        if rows == 1:
            self.plain[id(weight)] = weight
            found = _vector(flat[0], weight, bias)[None]
        else:
            size = 4 if rows <= 4 else -(-rows // 8) * 8
            packed = self._packed(weight, size)
            if packed is None:
                return F.linear(x, weight, bias)
            if size > rows:
                flat = F.pad(flat, (0, 0, 0, size - rows))
            found = torch.ops.mkl._mkl_linear(flat, packed, weight, bias, size)
            if size > rows:
                found = found[:rows]
        return found if x.dim() == 2 else found.view(*x.shape[:-1], -1)

    def _packed(self, weight: Tensor, size: int) -> Tensor | None:
        """The copy for so many rows; None while there was too little need for it."""
        place = id(weight), size
        if place not in self.packs:
            self.uses[place] = self.uses.get(place, 0) + 1
            if self.uses[place] <= self.patience:
                return None
            self.packs[place] = weight, torch.ops.mkl._mkl_reorder_linear_weight(weight.detach(), size)
        return self.packs[place][1]


def _vector(vector: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A matrix times a vector reads the matrix a little quicker than a product with one row."""
    return torch.mv(weight, vector) if bias is None else torch.addmv(bias, weight, vector)


def _packable(x: Tensor, weight: Tensor) -> bool:
    return (
        torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
        and weight.numel() >= LEAST
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and not torch.is_grad_enabled()
    )
