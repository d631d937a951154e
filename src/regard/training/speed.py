"""The measured speed of a step, and of the device."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch

from regard.device import synchronize
from regard.training.distributed.world import World

SECONDS = 3.0  # of the measurement
SIDE = defaultdict(lambda: 8192, cpu=1024)  # of the matrices whose product measures the peak, by device


@dataclass(frozen=True)
class Speed:
    """What was measured before a run: the seconds of a step, and the MFU of one token per second."""

    seconds_per_step: float
    mfu: float


def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """The measured FLOPS of a large matrix product."""
    size = SIDE[device.type]
    a = torch.randn(size, size, device=device, dtype=dtype)
    best = 0.0
    for _ in range(4):
        synchronize(device)
        begin = time.perf_counter()
        for _ in range(4):
            a @ a
        synchronize(device)
        best = max(best, 4 * 2 * size**3 / (time.perf_counter() - begin))
    return best


def seconds_per_step(step: Callable[[], object], device: torch.device, *, world: World) -> float:
    """Seconds per step, measured for a few seconds after warmup; all processes do the same steps."""
    (first,) = world.broadcast(_time(step, device, 1))
    if device.type != "cpu" or first < SECONDS:  # a GPU records its kernels in the second step
        _time(step, device, 1)
    (once,) = world.broadcast(_time(step, device, 1))
    if once > SECONDS > 0:  # long enough to be measured by one step
        return once
    count = max(int(SECONDS / 4 / once), 1)
    return min(_time(step, device, count) for _ in range(3)) / count


def _time(step: Callable[[], object], device: torch.device, count: int) -> float:
    synchronize(device)
    begin = time.perf_counter()
    for _ in range(count):
        step()
    synchronize(device)
    return time.perf_counter() - begin
