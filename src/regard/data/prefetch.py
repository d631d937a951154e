"""Prepares items in other threads while the model computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

PREFETCHED = 4  # items
S = TypeVar("S")
T = TypeVar("T")


def prefetch(items: Iterator[T]) -> Generator[T]:
    """The same items, prepared in another thread, a few of them ahead. An error is raised in its place."""
    end = object()
    results = prefetch_map(lambda _: next(items, end), iter(int, 1), threads=1)
    try:
        while (item := next(results)) is not end:
            yield item  # type: ignore[misc]
    finally:
        results.close()


def prefetch_map(function: Callable[[S], T], items: Iterator[S], *, threads: int) -> Generator[T]:
    """The results of a function in the order of the items, computed in `threads` other threads, a few ahead."""
    pool = ThreadPoolExecutor(threads)
    try:
        waiting = deque(pool.submit(function, item) for item in islice(items, PREFETCHED))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(pool.submit(function, item) for item in islice(items, 1))
            yield result
    finally:
        pool.shutdown(cancel_futures=True)
