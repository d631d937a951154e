"""The processes that train one model together: one by default, several where `torchrun` started them.

Knows ranks and how to agree. Knows nothing of models or data.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as distributed

__all__ = ["World", "joined"]

PATIENCE = timedelta(days=1)  # the first process may prepare text for hours while the others wait
BREATH = 0.1  # seconds


@dataclass(frozen=True)
class World:
    """Process `rank` of `size`, the `local`th on its machine. The first one writes and speaks."""

    rank: int = 0
    size: int = 1
    local: int = 0

    @property
    def first(self) -> bool:
        return self.rank == 0

    def device(self, chosen: torch.device) -> torch.device:
        """Each process its own GPU."""
        if chosen.type == "cuda" and chosen.index is None and self.size > 1:
            return torch.device("cuda", self.local)
        return chosen

    def wait(self) -> None:
        """Until all are here."""
        if self.size > 1:
            distributed.barrier()

    def agree(self, *values: float) -> tuple[float, ...]:
        """What the first process says, in all of them."""
        if self.size == 1:
            return values
        said = torch.tensor(values, dtype=torch.float64)
        distributed.broadcast(said, src=0)
        return tuple(said.tolist())

    def mean(self, *values: float) -> tuple[float, ...]:
        """The mean over all processes of what each says."""
        if self.size == 1:
            return values
        said = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(said)
        return tuple((said / self.size).tolist())

    def highest(self, value: float) -> float:
        """The largest number that any process says."""
        if self.size == 1:
            return value
        said = torch.tensor([value], dtype=torch.float64)
        distributed.all_reduce(said, op=distributed.ReduceOp.MAX)
        return float(said.item())

    def first_does(self, work: Callable[[], None]) -> None:
        """What one process does while the others wait. Where it fails, they leave without a word of their own."""
        try:
            if self.first:
                work()
        except BaseException:
            self.agree(1.0)
            raise
        if self.agree(0.0) != (0.0,):
            raise SystemExit(1)


@contextmanager
def joined() -> Iterator[World]:
    """The world that the environment tells of, as `torchrun` sets it."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield World()
        return
    # Gradients go through NCCL where they lie on GPUs, agreements through gloo.
    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE)
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if local < torch.cuda.device_count():
        torch.cuda.set_device(local)  # what NCCL talks through
    try:
        yield World(distributed.get_rank(), distributed.get_world_size(), local)
    finally:
        # Torch's threads need the interpreter to let go of the last tensors; whoever waits for those threads holds it.
        time.sleep(BREATH)
        distributed.destroy_process_group()
