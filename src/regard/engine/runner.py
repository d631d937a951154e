"""Runs batches through a model; results are copied out while the next batches compute."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

from regard.cancellation import check_cancelled

DEPTH = 4  # batches on the device before the results of the first are awaited
SWITCH_INTERVAL = 1e-5  # seconds: every tensor operation of the thread that feeds the GPU waits up to this long
K = TypeVar("K")
B = TypeVar("B")


def run_batches(
    batches: Iterable[tuple[K, B]], compute: Callable[[B], Tensor], device: torch.device
) -> Iterator[tuple[K, Tensor]]:
    """Yield the key of each batch with the result of `compute` in float32 on the CPU, in order.

    `compute` only enqueues work on a GPU. Nothing waits for a batch before the results of an earlier one are needed.
    """
    waiting: deque[tuple[K, Tensor, torch.cuda.Event | None]] = deque()
    depth = DEPTH if device.type == "cuda" else 0
    for key, batch in batches:
        check_cancelled()
        with torch.inference_mode():  # left before the yield, or the caller would be in it too
            waiting.append((key, *_copy_out(compute(batch))))
        while len(waiting) > depth:
            yield _finish(*waiting.popleft())
    while waiting:
        yield _finish(*waiting.popleft())


@contextmanager
def responsive_threads() -> Iterator[None]:
    """Inside the block, Python threads take turns often: a GPU must not wait while another thread tokenizes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_INTERVAL))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _copy_out(result: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """Start the copy of a result to the CPU. The event is reached when it is complete."""
    result = result.float()
    if not result.is_cuda:
        return result.cpu(), None
    host = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
    host.copy_(result, non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return host, event


def _finish(key: K, result: Tensor, event: torch.cuda.Event | None) -> tuple[K, Tensor]:
    if event is not None:
        event.synchronize()
    return key, result
