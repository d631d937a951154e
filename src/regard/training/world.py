"""The processes that train one model together: one by default, several under `torchrun`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as distributed

TIMEOUT = timedelta(days=1)  # the main process may prepare text for hours while the others wait
SHUTDOWN_DELAY = 0.1  # seconds


@dataclass(frozen=True)
class World:
    """Process `rank` of `size`. The main process, of rank 0, writes files and emits events."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """Each process uses its own GPU."""
        if device.type == "cuda" and device.index is None and self.size > 1:
            return torch.device("cuda", self.local_rank)
        return device

    def barrier(self) -> None:
        if self.size > 1:
            distributed.barrier()

    def broadcast(self, *values: float) -> tuple[float, ...]:
        """The main process's values, in all processes."""
        if self.size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        distributed.broadcast(tensor, src=0)
        return tuple(tensor.tolist())

    def mean(self, *values: float) -> tuple[float, ...]:
        """The mean of each value over all processes."""
        if self.size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(tensor)
        return tuple((tensor / self.size).tolist())

    def max(self, value: float) -> float:
        """The largest value over all processes."""
        if self.size == 1:
            return value
        tensor = torch.tensor([value], dtype=torch.float64)
        distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX)
        return float(tensor.item())

    @contextmanager
    def main_only(self) -> Iterator[bool]:
        """Yields whether this is the main process, which does the work of the body; the others wait for it.

        If the main process fails, the others exit silently.
        """
        try:
            yield self.is_main
        except BaseException:
            self.broadcast(1.0)
            raise
        if self.broadcast(0.0) != (0.0,):
            raise SystemExit(1)


@contextmanager
def join_world() -> Iterator[World]:
    """The world described by `torchrun`'s environment variables."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield World()
        return
    # Gradients on GPUs go through NCCL, broadcasts of values through gloo.
    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if local_rank < torch.cuda.device_count():
        torch.cuda.set_device(local_rank)  # for NCCL
    try:
        yield World(distributed.get_rank(), distributed.get_world_size(), local_rank)
    finally:
        # PyTorch's threads need the interpreter to release the last tensors; joining them holds it.
        time.sleep(SHUTDOWN_DELAY)
        distributed.destroy_process_group()
