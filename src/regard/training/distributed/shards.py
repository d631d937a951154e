"""Row shards of tensors: every process holds consecutive rows of a tensor, as `fully_shard` divides them.

Rows are divided as by `torch.chunk`, so the last processes may hold fewer rows, or none. Functions also accept ordinary
tensors, which are whole in every process.

In a checkpoint the file of process r is `model-R-of-N.safetensors`; `shards.json` lists the shape of each sharded
tensor and the first row in each file. Other tensors are whole, in the first file. Reading is by rows: any number of
processes can read what any other number wrote, and each reads only its own rows from the memory-mapped files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor

from regard.checkpoints.files import read_tensor_file, read_tensors, verify, write_safetensors
from regard.errors import InputError
from regard.files.checksums import CHECKSUMS, written_files
from regard.files.json_files import json_bytes, read_json

SHARDS = "shards.json"
INDEX_BYTES = 64_000_000


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


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor in several files: the first row in each file, and the rows there."""

    shape: torch.Size
    starts: tuple[int, ...]
    parts: tuple[Tensor, ...]

    @property
    def dtype(self) -> torch.dtype:
        return self.parts[0].dtype

    def read(self, rows: slice) -> Tensor:
        """Some consecutive rows, from the files that hold them."""
        start, stop, _ = rows.indices(self.shape[0])
        found = [
            part[max(start - first, 0) : max(stop - first, 0)]
            for first, part in zip(self.starts, self.parts, strict=True)
        ]
        return torch.cat(found)


def read_rows(stored: Tensor | StoredTensor, rows: slice) -> Tensor:
    """Some consecutive rows of a stored tensor."""
    return stored.read(rows) if isinstance(stored, StoredTensor) else stored[rows] if stored.ndim else stored


def shard_name(rank: int, processes: int) -> str:
    return f"model-{rank + 1:05d}-of-{processes:05d}.safetensors"


def write_shard(folder: Path, tensors: Mapping[str, Tensor], *, rank: int, processes: int) -> str:
    """Write this process's rows of all tensors, and in process 0 the tensors that are whole; returns the file name."""
    mine = {name: local_part(tensor) for name, tensor in tensors.items() if is_sharded(tensor) or rank == 0}
    path = folder / shard_name(rank, processes)
    write_safetensors(path, mine)
    handle = os.open(path, os.O_RDONLY)  # the process that renames the folder may be on another machine
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return path.name


def shard_index(tensors: Mapping[str, Tensor], *, processes: int) -> bytes:
    """The content of `shards.json`."""
    sharded = {
        name: {"shape": list(tensor.shape), "starts": first_rows(len(tensor), processes)[:-1]}
        for name, tensor in tensors.items()
        if is_sharded(tensor)
    }
    return json_bytes({"files": processes, "tensors": sharded})


def read_stored(folder: Path, *, verified: bool = False) -> dict[str, Tensor | StoredTensor]:
    """All tensors of a checkpoint by name. Files are compared with their checksums unless they are `verified`."""
    if not (folder / SHARDS).is_file():
        if SHARDS in written_files(folder):
            raise InputError(f"{folder / SHARDS}: missing, but listed in {CHECKSUMS}; copy the checkpoint again")
        return dict(read_tensors(folder, verified=verified))
    index = read_json(folder / SHARDS, limit=INDEX_BYTES)
    count, sharded = index.get("files"), index.get("tensors")
    if not isinstance(count, int) or not 0 < count < 100_000 or not isinstance(sharded, dict):
        raise _damaged(folder, "it does not list files and tensors")
    names = [shard_name(rank, count) for rank in range(count)]
    if not verified and not {SHARDS, *names} <= verify(folder).keys():
        raise _damaged(folder, "a file has no checksum")
    files = [read_tensor_file(folder / name) for name in names]
    tensors: dict[str, Tensor | StoredTensor] = {n: t for n, t in files[0].items() if n not in sharded}
    for name, entry in sharded.items():
        parts = [file.get(name) for file in files]
        tensors[name] = _stored_tensor(folder, name, entry, parts)
    return tensors


def _stored_tensor(folder: Path, name: str, entry: Any, parts: list[Tensor | None]) -> StoredTensor:
    shape, starts = (entry.get(key) if isinstance(entry, dict) else None for key in ("shape", "starts"))
    found = [part for part in parts if part is not None]
    if not isinstance(shape, list) or not isinstance(starts, list) or not len(parts) == len(starts) == len(found):
        raise _damaged(folder, f"{name} is not in all files")
    # Consecutive rows of one shape that end with the last row of the tensor.
    ends = [start + len(part) for start, part in zip(starts, found, strict=True)]
    if [*starts, shape[0]] != [0, *ends] or any([*part.shape[1:]] != shape[1:] for part in found):
        raise _damaged(folder, f"the parts of {name} do not make up a tensor of shape {shape}")
    if len({part.dtype for part in found}) > 1:
        raise _damaged(folder, f"the parts of {name} have several dtypes")
    return StoredTensor(torch.Size(shape), tuple(starts), tuple(found))


def _damaged(folder: Path, reason: str) -> InputError:
    return InputError(f"{folder / SHARDS}: does not fit the files of the checkpoint: {reason}; copy it again")
