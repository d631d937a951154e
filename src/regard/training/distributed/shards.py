"""Row shards of tensors: every process holds consecutive rows of a tensor, as `fully_shard` divides them.

Rows are divided as by `torch.chunk`, so the last processes may hold fewer rows, or none. Functions also accept ordinary
tensors, which are whole in every process. Nothing here knows about models or files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor; its class is not imported, which takes longer than a short command."""
    return hasattr(tensor, "device_mesh")


def local_part(tensor: Tensor) -> Tensor:
    """The rows of this process, which share memory with the tensor; an ordinary tensor itself."""
    sharded: Any = tensor
    return sharded.to_local() if is_sharded(tensor) else tensor


def first_rows(rows: int, processes: int) -> list[int]:
    """The first row of each process, and the number of rows at the end."""
    size = -(-rows // processes)
    return [min(size * rank, rows) for rank in range(processes + 1)]


def local_rows(tensor: Tensor) -> slice:
    """The rows of this process."""
    if not is_sharded(tensor):
        return slice(0, len(tensor)) if tensor.ndim else slice(None)
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    starts = first_rows(len(tensor), mesh.size())
    rank = mesh.get_local_rank()
    return slice(starts[rank], starts[rank + 1])


def gather_whole(tensor: Tensor) -> Tensor:
    """The whole tensor; all processes take part."""
    sharded: Any = tensor
    return sharded.full_tensor() if is_sharded(tensor) else tensor


def total_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The norm of all gradients over all processes; ordinary tensors, which are the same in all of them, count once."""
    sharded = [local_part(gradient) for gradient in gradients if is_sharded(gradient)]
    others = [gradient for gradient in gradients if not is_sharded(gradient)]
    square = torch.nn.utils.get_total_norm(sharded).square()
    if square.device != gradients[0].device:  # there was none
        square = square.to(gradients[0].device)
    distributed.all_reduce(square)
    return (square + torch.nn.utils.get_total_norm(others).square().to(square.device)).sqrt()


class WholeMatrices:
    """Brings sharded matrices together: matrix k is whole in process k mod n, so that each process gets its share."""

    def __init__(self, matrices: Sequence[Tensor]) -> None:
        self.shapes, self._like = [matrix.shape for matrix in matrices], local_part(matrices[0])
        mesh = matrices[0].device_mesh  # type: ignore[attr-defined]
        self.group, self.rank, self.size = mesh.get_group(), mesh.get_local_rank(), mesh.size()
        self.owned = range(self.rank, len(matrices), self.size)

    def collect(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The matrices that this process owns, from the local part of every matrix."""
        to_owner = [[parts[k] for k in range(rank, len(parts), self.size)] for rank in range(self.size)]
        shapes = [[self._part_shape(k, rank) for k in self.owned] for rank in range(self.size)]
        received = self._exchange(to_owner, shapes)
        return [torch.cat([received[rank][i] for rank in range(self.size)]) for i in range(len(self.owned))]

    def distribute(self, whole: Sequence[Tensor]) -> list[Tensor]:
        """The local part of every matrix, from the matrices that this process owns."""
        starts = [first_rows(self.shapes[k][0], self.size) for k in self.owned]
        to_rank = [
            [matrix[start[rank] : start[rank + 1]] for matrix, start in zip(whole, starts, strict=True)]
            for rank in range(self.size)
        ]
        count = len(self.shapes)
        shapes = [
            [self._part_shape(k, self.rank) for k in range(owner, count, self.size)] for owner in range(self.size)
        ]
        received = self._exchange(to_rank, shapes)
        return [received[k % self.size][k // self.size] for k in range(count)]

    def _part_shape(self, k: int, rank: int) -> torch.Size:
        starts = first_rows(self.shapes[k][0], self.size)
        return torch.Size([starts[rank + 1] - starts[rank], *self.shapes[k][1:]])

    def _exchange(self, parts: list[list[Tensor]], shapes: list[list[torch.Size]]) -> list[list[Tensor]]:
        """Send a list of parts to each process; receive from each process parts of the given shapes."""
        flat = torch.cat([self._like.new_empty(0), *(part.reshape(-1) for sent in parts for part in sent)])
        sizes = [sum(part.numel() for part in sent) for sent in parts]
        expected = [sum(shape.numel() for shape in each) for each in shapes]
        received = self._like.new_empty(sum(expected))
        distributed.all_to_all_single(received, flat, expected, sizes, group=self.group)
        pieces = iter(torch.split(received, [shape.numel() for each in shapes for shape in each]))
        return [[next(pieces).view(shape) for shape in each] for each in shapes]
