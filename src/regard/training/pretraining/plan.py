"""The plan of a run: measured speed, and the expected loss from a curve fitted to finished runs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

import torch

from regard.device import synchronize
from regard.training.pretraining.config import PretrainingConfig
from regard.training.pretraining.objectives import layer_parameters
from regard.training.world import World

# The runs behind the curve: parameters of the layers, vocabulary size, and tokens read.
MEASURED_LAYERS, MEASURED_VOCABULARY, MEASURED_TOKENS = 10_616_832, 30_522, (5e7, 5e9)
CURVE = (2.05, 1.62, 0.42)  # irreducible loss, reducible loss at 100 million tokens, exponent
SECONDS = 3.0  # of the measurement
SIDE = defaultdict(lambda: 8192, cpu=1024)  # of the matrices whose product measures the peak, by device


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


def expected_loss(config: PretrainingConfig, vocabulary: int, tokens: int) -> float | None:
    """The masked language modeling loss to expect after `tokens` tokens; None if no comparable run was measured.

    The curve is fitted to runs on English text with 6 layers of 384, a vocabulary of 30,522 and Muon.
    """
    comparable = (
        config.recipe.objective == "masked-lm"
        and config.optimizer.name == "muon"
        and config.objective.mlm_probability == 0.15
        and 1 / 2 <= layer_parameters(config.model) / MEASURED_LAYERS <= 2
        and 3 / 4 <= vocabulary / MEASURED_VOCABULARY <= 4 / 3
        and MEASURED_TOKENS[0] <= tokens <= MEASURED_TOKENS[1]
    )
    least, size, power = CURVE
    return least + size * (tokens / 1e8) ** -power if comparable else None
