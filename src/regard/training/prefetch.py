"""Prepares batches in another thread while the model trains."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, Self, TypeVar

PREFETCHED = 4  # batches


class Pinnable(Protocol):
    def pinned(self) -> Self:
        """In pinned memory, which a GPU copies asynchronously."""


B = TypeVar("B", bound=Pinnable)


def prefetch(batches: Iterator[B], *, pin: bool) -> Generator[B]:
    """The same batches, prepared in another thread."""

    def make() -> B | None:
        batch = next(batches, None)
        return batch.pinned() if pin and batch is not None else batch

    thread = ThreadPoolExecutor(1)
    try:
        waiting = deque(thread.submit(make) for _ in range(PREFETCHED))
        while (batch := waiting.popleft().result()) is not None:
            waiting.append(thread.submit(make))
            yield batch
    finally:
        thread.shutdown(cancel_futures=True)
