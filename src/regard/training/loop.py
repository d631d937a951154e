"""The training loop: a generator that yields a step at a time; the caller logs, evaluates, saves and stops.

Knows gradients, precision and the schedule. Knows nothing of text, files or what is learned: the module returns its
losses by name, the one under "loss" is minimised. A step's losses stay on their device until they are looked at, so a
GPU never waits for the caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from regard.nn.block import Block
from regard.training.adversary import Adversary
from regard.training.optimizer import set_rate

__all__ = ["Clock", "Counter", "Progress", "Step", "Stopwatch", "frugal", "train"]

Inputs = Mapping[str, Tensor]


class Progress(Protocol):
    """How far a run is, 0 to 1, before step `number`; at 1 it ends."""

    def __call__(self, number: int) -> float: ...


@dataclass(frozen=True)
class Counter:
    """A run of so many steps."""

    steps: int

    def __call__(self, number: int) -> float:
        return number / self.steps


class Stopwatch:
    """Seconds of work, `used` of them before; it stands still until it is started, and while it is paused."""

    def __init__(self, used: float = 0.0) -> None:
        self._before, self._started = used, 0.0

    @property
    def used(self) -> float:
        return self._before + (time.perf_counter() - self._started if self._started else 0.0)

    def start(self) -> None:
        self._started = self._started or time.perf_counter()

    def pause(self) -> None:
        self._before, self._started = self.used, 0.0


@dataclass(frozen=True)
class Clock:
    """A run of so many seconds on a stopwatch."""

    seconds: float
    watch: Stopwatch

    def __call__(self, number: int) -> float:
        return min(self.watch.used / self.seconds, 1.0)


@dataclass(frozen=True, eq=False)
class Step:
    """What a step was: its number from 0, how far the run was before it, the rate, and its mean losses by name."""

    number: int
    progress: float
    rate: float
    losses: Mapping[str, Tensor]
    norm: Tensor  # of the gradient, before it is clipped


def train(
    module: nn.Module,
    batches: Iterable[Sequence[Inputs]],
    optimizers: Sequence[torch.optim.Optimizer],
    *,
    progress: Progress,
    rate: Callable[[float], float],
    clip: float = 1.0,
    half: torch.dtype | None = None,
    adversary: Adversary | None = None,
    first: int = 0,
) -> Generator[Step, None, None]:
    """Train until `progress` says 1. A batch is the parts whose gradients are gathered before a step.

    `rate` gives the learning rate at a progress; `half` is the type products are computed in; `first` is the number of
    the step to begin with. With an `adversary` each part is learned twice, as it is and as the adversary has it; the
    losses are those of the first time. What a step yields was done: whoever stops iterating stops after a whole step.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    kind = parameters[0].device.type
    module.train()
    number = first
    source = iter(batches)

    def learn(inputs: Inputs, share: int) -> dict[str, Tensor]:
        with torch.autocast(kind, dtype=half) if half else nullcontext():
            losses: dict[str, Tensor] = module(**inputs)
        torch.autograd.backward(losses["loss"] / share)
        return losses

    while (done := progress(number)) < 1:  # asked first: a batch that is drawn is trained on
        if (batch := next(source, None)) is None:
            return
        now = rate(done)
        set_rate(optimizers, now)
        total: dict[str, Tensor] = {}
        for place, inputs in enumerate(batch, start=1):
            with _shared(module, last=place == len(batch)):
                losses = learn(inputs, len(batch))
                if adversary is not None:
                    with adversary.moved():
                        learn(inputs, len(batch))
            for name, loss in losses.items():
                part = loss.detach() / len(batch)
                total[name] = total[name] + part if name in total else part
        norm = nn.utils.clip_grad_norm_(parameters, clip)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        yield Step(number, done, now, total, norm)
        number += 1


def _shared(module: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    """Processes add up their gradients once a step, with the last part of the batch."""
    if isinstance(module, DistributedDataParallel) and not last:
        return module.no_sync()
    return nullcontext()


def frugal(model: nn.Module) -> None:
    """Keep what enters each layer and compute the rest again on the way back: less memory, a third more time."""
    for block in model.modules():
        if isinstance(block, Block):
            plain = block.forward

            def again(*args: Any, _plain: Callable[..., Tensor] = plain, **options: Any) -> Tensor:
                result: Tensor = checkpoint(partial(_plain, **options), *args, use_reentrant=False)
                return result

            block.forward = again  # type: ignore[method-assign]
