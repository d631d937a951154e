"""The key-value store through which the processes of a run find one another, without keys of an earlier attempt.

`torchrun` keeps one store for all attempts, so after a restart it still holds the addresses of ended processes, and
torch would connect to those. The processes therefore agree on a new prefix for their keys: each writes a random number,
and the main process repeats the numbers it finds, with the prefix, until every process has seen its own among them.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from datetime import timedelta
from typing import Any

from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from regard.errors import RegardError

POLL = 0.02  # seconds


def open_store(timeout: timedelta) -> tuple[Any, int, int]:
    """The store, the rank of this process and the number of processes."""
    store, rank, size = next(rendezvous("env://", timeout=timeout))
    store.set_timeout(timeout)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        store = PrefixStore(agree_on_prefix(store, rank, size, timeout), store)
    return store, rank, size


def agree_on_prefix(store: Any, rank: int, size: int, timeout: timedelta) -> str:
    """A prefix that no earlier attempt used, the same in all processes."""
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
