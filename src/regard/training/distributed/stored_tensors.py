"""Tensors of a checkpoint on disk: whole, or as row shards that several processes wrote, one file each.

The file of process r is `model-R-of-N.safetensors`; `shards.json` lists the shape of each sharded tensor and the first
row in each file. Other tensors are whole, in the first file. Reading is by rows: any number of processes can read what
any other number wrote, and each reads only its own rows from the memory-mapped files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.checkpoints.files import read_tensor_file, read_tensors, verify, write_safetensors
from regard.errors import InputError
from regard.files.checksums import CHECKSUMS, written_files
from regard.files.json_files import json_bytes, read_json
from regard.training.distributed.shards import first_rows, is_sharded, local_part

SHARDS = "shards.json"
INDEX_BYTES = 64_000_000


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
