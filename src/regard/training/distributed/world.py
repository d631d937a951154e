"""The processes that train one model together: one by default, several under `torchrun`."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from regard.errors import RegardError

TIMEOUT = timedelta(minutes=10)  # of a step: a process that hangs ends the run after that
PATIENCE = timedelta(days=1)  # the main process may prepare text or evaluate for hours while the others wait
SHUTDOWN_DELAY = 0.1  # seconds
POLL = 0.02  # seconds
# Parts of the messages with which gloo and NCCL report a process that ended or hangs.
LOST = ("gloo", "closed by peer", "connection reset", "nccl", "timed out", "timeout", "socket", "broken pipe")


@dataclass(frozen=True)
class World:
    """Process `rank` of `size`. The main process, of rank 0, writes files and emits events."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    # Process groups for values on the CPU: within a step, and for waits of any length.
    group: Any = field(default=None, compare=False, repr=False)
    patient: Any = field(default=None, compare=False, repr=False)

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """Each process uses its own GPU."""
        if device.type == "cuda" and device.index is None and self.size > 1:
            # Schedulers may show each process only its own GPU.
            return torch.device("cuda", self.local_rank % (torch.cuda.device_count() or self.size))
        return device

    def barrier(self) -> None:
        """Wait until all processes are here, for as long as it takes."""
        if self.size > 1:
            distributed.all_reduce(torch.zeros(1), group=self.patient)

    def broadcast(self, *values: float) -> tuple[float, ...]:
        """The main process's values, in all processes."""
        if self.size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        distributed.broadcast(tensor, src=0, group=self.group)
        return tuple(tensor.tolist())

    def mean(self, *values: float) -> tuple[float, ...]:
        """The mean of each value over all processes."""
        return tuple(total / self.size for total in self._reduce(values, "SUM"))

    def max(self, value: float) -> float:
        """The largest value over all processes."""
        return self._reduce((value,), "MAX")[0]

    def _reduce(self, values: tuple[float, ...], operation: str) -> tuple[float, ...]:
        if self.size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(tensor, op=getattr(distributed.ReduceOp, operation), group=self.group)
        return tuple(tensor.tolist())

    def broadcast_json(self, value: Any) -> Any:
        """The main process's value in all processes, as JSON; they wait for it as long as it takes."""
        if self.size == 1:
            return value
        data = _to_bytes(value if self.is_main else None)
        size = torch.tensor([len(data)])
        distributed.broadcast(size, src=0, group=self.patient)
        data = data if self.is_main else torch.empty(int(size), dtype=torch.uint8)
        distributed.broadcast(data, src=0, group=self.patient)
        return json.loads(bytes(data.tolist()))

    def gather_json(self, value: Any) -> list[Any]:
        """The values of all processes by rank, in all processes, as JSON; they wait for it as long as it takes."""
        if self.size == 1:
            return [value]
        data = _to_bytes(value)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        distributed.all_gather(sizes, torch.tensor([len(data)]), group=self.patient)
        padded = torch.zeros(max(map(int, sizes)), dtype=torch.uint8)
        padded[: len(data)] = data
        rows = [torch.empty_like(padded) for _ in range(self.size)]
        distributed.all_gather(rows, padded, group=self.patient)
        return [json.loads(bytes(row[: int(size)].tolist())) for row, size in zip(rows, sizes, strict=True)]

    @contextmanager
    def main_only(self) -> Iterator[bool]:
        """Yields whether this is the main process, which does the work of the body; the others wait for it.

        If the main process fails, the others exit silently.
        """
        try:
            yield self.is_main
        except BaseException:
            with suppress(RuntimeError):  # the others are gone already; this error is the one to report
                self.broadcast_json(True)
            raise
        if self.broadcast_json(False):
            raise SystemExit(1)


@contextmanager
def join_world() -> Iterator[World]:
    """The world described by `torchrun`'s environment variables.

    A process group that exists already, such as Ray Train's, is used and stays. If another process ends or hangs, this
    one ends with a RegardError.
    """
    if num_processes() == 1:
        yield World()
        return
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if count := torch.cuda.device_count():
        torch.cuda.set_device(local_rank % count)  # for NCCL
    is_ours = not distributed.is_initialized()
    if is_ours:
        # Gradients on GPUs go through NCCL, broadcasts of values through gloo.
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        store, rank, size = open_store(TIMEOUT)
        distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    rank, size = distributed.get_rank(), distributed.get_world_size()
    try:
        # With gloo, a process that ends is noticed at once, however long the timeout is.
        groups = [distributed.new_group(backend="gloo", timeout=timeout) for timeout in (TIMEOUT, PATIENCE)]
        yield World(rank, size, local_rank, *groups)
    except RuntimeError as error:  # torch's errors of collectives; RegardErrors are no RuntimeErrors
        if not any(part in str(error).lower() for part in LOST):
            raise
        raise RegardError(
            f"process {rank} of {size} lost another process, which ended or did not answer for "
            f"{TIMEOUT.total_seconds() / 60:.0f} minutes; its own message says why. The last checkpoint is complete: "
            "run the same command with --resume to continue"
        ) from error
    finally:
        if is_ours:
            # PyTorch's threads need the interpreter to release the last tensors; joining them holds it.
            time.sleep(SHUTDOWN_DELAY)
            distributed.destroy_process_group()


def open_store(timeout: timedelta) -> tuple[Any, int, int]:
    """The key-value store through which the processes find one another, the rank of this one and their number."""
    store, rank, size = next(rendezvous("env://", timeout=timeout))
    store.set_timeout(timeout)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        store = PrefixStore(agree_on_prefix(store, rank, size, timeout), store)
    return store, rank, size


def agree_on_prefix(store: Any, rank: int, size: int, timeout: timedelta) -> str:
    """A prefix for keys that no earlier attempt used, the same in all processes.

    `torchrun` keeps one store for all attempts, so after a restart it still holds the addresses of ended processes, and
    torch would connect to those. Each process therefore writes a random number, and the main process repeats the
    numbers it finds, with the prefix, until every process has seen its own among them.
    """
    number = secrets.token_hex(8)
    prefix: str = f"regard-{secrets.token_hex(8)}"
    deadline = time.monotonic() + timeout.total_seconds()
    store.set(f"regard-join-{rank}", number)
    written: list[str] | None = None
    while True:
        if rank == 0:
            names = [f"regard-join-{each}" for each in range(size)]
            found = [store.get(name).decode() if store.check([name]) else "" for name in names]
            if found != written:
                store.set("regard-prefix", json.dumps([prefix, found]))
                written = found
            if store.check([f"{prefix}-seen-{each}" for each in range(1, size)] or ["regard-prefix"]):
                return prefix
        elif store.check(["regard-prefix"]):
            prefix, found = json.loads(store.get("regard-prefix"))
            if len(found) == size and found[rank] == number:
                store.set(f"{prefix}-seen-{rank}", "")
                return prefix
        if time.monotonic() > deadline:
            raise RegardError(
                f"process {rank} of {size} does not find the others within {timeout.total_seconds() / 60:.0f} minutes; "
                "check that all machines were started with the same --nnodes, --rdzv-id and --rdzv-endpoint"
            )
        time.sleep(POLL)


def num_processes() -> int:
    """The number of processes that `torchrun` started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def _to_bytes(value: Any) -> Tensor:
    return torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)
