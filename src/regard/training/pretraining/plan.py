"""What a run will do, told before it starts: how fast, how long, how much text, and which loss to expect.

Knows arithmetic, a quick measurement and a curve fitted to finished runs. Trains nothing that is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from regard.device import synchronize
from regard.training.pretraining.config import PretrainingConfig
from regard.training.pretraining.sections import ModelSection
from regard.training.pretraining.span_corruption import SpanSizes
from regard.training.world import World

__all__ = ["Plan", "expected_loss", "flops_per_token", "peak_flops", "seconds_per_step"]

# What the runs of the curve had: parameters in layers, words, and tokens read.
MEASURED_LAYERS, MEASURED_VOCABULARY, MEASURED_TOKENS = 10_616_832, 30_522, (5e7, 5e9)
CURVE = (2.05, 1.62, 0.42)  # the loss never reached, the distance from it at 100 million tokens, and its power
SECONDS = 3.0  # of measurement
SIDE = {"cpu": 1024, "cuda": 8192}  # of the matrices whose product tells a device's highest speed


@dataclass(frozen=True)
class Plan:
    """Speed as measured, and what follows from it for the run."""

    tokens_per_second: float
    steps: int
    seconds: float
    tokens: int
    epochs: float
    utilisation: float  # of the device's highest speed in matrix products
    loss: float | None  # in nats, on held-out text; None where no run like it was seen


def flops_per_token(config: PretrainingConfig, vocabulary: int) -> float:
    """Additions and multiplications of matrix products and attention, forward and backward, per token read."""
    model, length = config.model, config.data.max_length
    output = 2.0 * model.hidden_size * vocabulary
    if model.family == "elmo":
        return 3.0 * 2 * (2 * _lstms(model) + output)
    layers = 2 * _layers(model) + 4 * model.num_hidden_layers * length * model.hidden_size
    if model.family == "t5":
        sizes = SpanSizes.filling(
            length, rate=config.objective.mlm_probability, span=config.objective.mean_noise_span_length
        )
        # The decoder's layers look at the encoder's states too, whose keys and values are made once for each.
        looks = 2 * model.num_hidden_layers * 2 * model.hidden_size**2
        said = layers - 4 * model.num_hidden_layers * (length - sizes.targets) * model.hidden_size + looks
        said += 4 * model.num_hidden_layers * length * model.hidden_size
        return 3.0 * (layers + looks + (said + output) * sizes.targets / length)
    if model.family == "bert":
        output = (output + 2 * model.hidden_size**2) * config.objective.mlm_probability
    return 3.0 * (layers + output)


def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """The speed of a large matrix product, measured."""
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
    """How long a step takes, measured for a few seconds after some that warm up; all processes do the same steps."""
    _lasts(step, device, 2)
    count = max(int(world.agree(SECONDS / 4 / _lasts(step, device, 1))[0]), 1)
    return min(_lasts(step, device, count) for _ in range(3)) / count


def _lasts(step: Callable[[], object], device: torch.device, count: int) -> float:
    synchronize(device)
    begin = time.perf_counter()
    for _ in range(count):
        step()
    synchronize(device)
    return time.perf_counter() - begin


def expected_loss(config: PretrainingConfig, vocabulary: int, tokens: int) -> float | None:
    """The loss of hidden words to expect after so many tokens; None where no run like it was measured.

    The curve is fitted to runs on English text with 6 layers of 384, 30,522 words and Muon.
    """
    model = config.model
    alike = (
        model.family == "bert"
        and config.optimizer.name == "muon"
        and config.objective.mlm_probability == 0.15
        and 1 / 2 <= _layers(model) / MEASURED_LAYERS <= 2
        and 3 / 4 <= vocabulary / MEASURED_VOCABULARY <= 4 / 3
        and MEASURED_TOKENS[0] <= tokens <= MEASURED_TOKENS[1]
    )
    least, size, power = CURVE
    return least + size * (tokens / 1e8) ** -power if alike else None


def _lstms(model: ModelSection) -> int:
    """The parameters of the matrices in one direction's LSTMs."""
    projected = model.intermediate_size * model.hidden_size if model.intermediate_size > model.hidden_size else 0
    return model.num_hidden_layers * (8 * model.intermediate_size * model.hidden_size + projected)


def _layers(model: ModelSection) -> int:
    """The parameters of the matrices in the layers."""
    return model.num_hidden_layers * (4 * model.hidden_size**2 + 2 * model.hidden_size * model.intermediate_size)
