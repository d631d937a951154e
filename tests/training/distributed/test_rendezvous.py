"""Processes agree on a prefix in a store that still holds the keys of an earlier attempt."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from torch.distributed import HashStore

from regard.errors import RegardError
from regard.training.distributed.world import agree_on_prefix

LONG, SHORT = timedelta(seconds=60), timedelta(seconds=0.3)


def attempt(store: Any, size: int) -> list[str]:
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: agree_on_prefix(store, rank, size, LONG), range(size)))


def test_each_attempt_has_its_own_prefix() -> None:
    store = HashStore()
    found = [attempt(store, size) for size in (3, 3, 2, 4, 1)]
    assert all(len({*prefixes}) == 1 for prefixes in found)
    assert len({prefixes[0] for prefixes in found}) == len(found)


def test_a_process_that_stays_away() -> None:
    store = HashStore()
    attempt(store, 2)  # leaves the number of rank 1
    with pytest.raises(RegardError, match="process 0 of 2 does not find the others"):
        agree_on_prefix(store, 0, 2, SHORT)
