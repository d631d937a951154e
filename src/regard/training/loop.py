"""The training loop: a generator that yields one step at a time; the caller logs, evaluates, saves and stops.

The module returns its losses by name and the one under "loss" is minimized. The losses of a step stay on their device
until they are read, so a GPU never waits for the caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from regard.errors import InputError
from regard.nn.layer import layers_of
from regard.training.distributed.shards import is_sharded, local_part, total_norm
from regard.training.optimizer import set_learning_rate

Inputs = Mapping[str, Tensor]


class Stopwatch:
    """Counts seconds while it runs, starting from `elapsed`."""

    def __init__(self, elapsed: float = 0.0) -> None:
        self._before, self._started = elapsed, 0.0

    @property
    def elapsed(self) -> float:
        return self._before + (time.perf_counter() - self._started if self._started else 0.0)

    def start(self) -> None:
        self._started = self._started or time.perf_counter()

    def pause(self) -> None:
        self._before, self._started = self.elapsed, 0.0


@dataclass(frozen=True, eq=False)
class Step:
    """A finished step: its number from 0, the progress of the run before it, and its mean losses by name."""

    number: int
    progress: float
    learning_rate: float
    losses: Mapping[str, Tensor]
    grad_norm: Tensor  # before clipping


class AdversarialPerturbation:
    """Moves a weight by `epsilon` along its gradient, where the loss grows fastest (Miyato, Dai and Goodfellow 2017).

    The gradient is that of the previous backward pass; a second pass inside `applied` adds to it.
    """

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        self.weight, self.epsilon = weight, epsilon

    @contextmanager
    def applied(self) -> Iterator[None]:
        gradient = self.weight.grad
        if gradient is None:
            raise RuntimeError("no gradient yet: the perturbation needs a backward pass first")
        weight = local_part(self.weight.detach())
        original = weight.clone()  # restored bit for bit, which subtracting would not do
        with torch.no_grad():
            # On the device: a GPU does not wait for the norm.
            norm = total_norm([gradient]) if is_sharded(gradient) else gradient.norm()
            weight.add_(local_part(gradient) * (self.epsilon / (norm + 1e-12)))
        try:
            yield
        finally:
            with torch.no_grad():
                weight.copy_(original)


def train(
    module: nn.Module,
    batches: Iterable[Sequence[Inputs]],
    optimizers: Sequence[torch.optim.Optimizer],
    *,
    progress: Callable[[int], float],
    learning_rate: Callable[[float], float],
    max_grad_norm: float = 1.0,
    autocast: torch.dtype | None = None,
    perturbation: AdversarialPerturbation | None = None,
    first: int = 0,
) -> Generator[Step, None, None]:
    """Train until `progress`, that of the run before a step, reaches 1.

    A batch is a sequence of micro-batches whose gradients are accumulated. `learning_rate` maps progress to the rate,
    and `first` is the number of the first step. With a `perturbation` each micro-batch is trained on twice, unperturbed
    and perturbed, while its weight is trained; the reported losses are the unperturbed ones. A yielded step is
    complete, so a caller that stops iterating stops between two steps.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    device = parameters[0].device.type
    module.train()
    number = first
    source = iter(batches)
    while (done := progress(number)) < 1:  # checked first: a batch that is drawn is trained on
        if (batch := next(source, None)) is None:
            return
        rate = learning_rate(done)
        set_learning_rate(optimizers, rate)
        total: dict[str, Tensor] = {}
        perturbed = perturbation is not None and perturbation.weight.requires_grad
        for index, inputs in enumerate(batch, start=1):
            for second in (False, True) if perturbed else (False,):
                sync = _gradient_sync(module, last=index == len(batch))
                with sync, perturbation.applied() if second and perturbation else nullcontext():
                    with torch.autocast(device, dtype=autocast) if autocast else nullcontext():
                        losses: dict[str, Tensor] = module(**inputs)
                    torch.autograd.backward(losses["loss"] / len(batch))
                for name, loss in losses.items() if not second else ():
                    part = loss.detach() / len(batch)
                    total[name] = total[name] + part if name in total else part
        norm = clip_gradients(parameters, max_grad_norm)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        yield Step(number, done, rate, total, norm)
        number += 1


def clip_gradients(parameters: Sequence[Tensor], max_norm: float) -> Tensor:
    """Scale gradients down to a norm of at most `max_norm`, over all shards; returns the norm before."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not any(map(is_sharded, gradients)):
        return nn.utils.clip_grad_norm_(parameters, max_norm)
    norm = total_norm(gradients)
    torch._foreach_mul_([local_part(gradient) for gradient in gradients], (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


def _gradient_sync(module: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    """Replicas average their gradients once per step, with the last micro-batch.

    Shards are averaged with every micro-batch: until then each process would hold the gradients of the whole model.
    """
    if isinstance(module, DistributedDataParallel) and not last:
        return module.no_sync()
    return nullcontext()


def enable_gradient_checkpointing(model: nn.Module) -> None:
    """Recompute each layer in the backward pass: less memory for about a third more time."""
    layers = layers_of(model)
    if not layers:
        raise InputError("run.gradient_checkpointing recomputes layers, and this model has no layers; leave it out")
    for layer in layers:

        def checkpointed(*args: Any, _forward: Callable[..., Any] = layer.forward, **options: Any) -> Any:
            return checkpoint(partial(_forward, **options), *args, use_reentrant=False)

        layer.forward = checkpointed


def derive_seed(*numbers: int) -> int:
    """A seed that depends on all numbers: randomness in a step follows from the run's seed and the step alone."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]) >> 1
