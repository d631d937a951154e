"""Train heads on kept states, all of them in one loop, and ask them. Knows classes as numbers.

The same seed gives the same heads. Nothing is chosen by looking at the examples that are scored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.interpret.probes.heads import Features, LinearHeads
from regard.interpret.probes.states import States
from regard.nn.masks import Packed

__all__ = ["BILSTM", "LINEAR", "Recipe", "fit", "predict", "standardise"]

ASKED = 1024  # examples at a time

Classes = NDArray[np.int64]


@dataclass(frozen=True)
class Recipe:
    """At least `epochs` passes and `steps` steps of Adam; the rate falls to zero in a line. `batch` is in examples."""

    batch: int
    epochs: int
    steps: int
    rate: float


LINEAR = Recipe(batch=1024, epochs=5, steps=400, rate=3e-2)
BILSTM = Recipe(batch=32, epochs=3, steps=300, rate=1e-3)


def standardise(features: Features, states: States) -> None:
    """Measure the mean and deviation of every feature over all items."""
    device = features.mean.device
    total = torch.zeros(features.mean.shape, dtype=torch.float64, device=device)
    squares = torch.zeros_like(total)
    count = states.values.shape[1]
    middle: Tensor | None = None
    for start in range(0, count, 4096):
        raw = features.raw(_tensor(states.values[:, start : start + 4096], device))
        # Near the middle, the sum of squares loses nothing in single precision.
        middle = raw.mean(1, keepdim=True) if middle is None else middle
        raw = raw - middle
        total += raw.sum(1, keepdim=True)
        squares += raw.square().sum(1, keepdim=True)
    assert middle is not None
    mean = total / count
    deviation = (squares / count - mean.square()).clamp(min=0).sqrt()
    features.mean.copy_(mean + middle)
    # A feature that never changes says nothing, and must not be divided by nearly nothing.
    features.deviation.copy_(torch.where(deviation > 1e-4, deviation, 1.0))


def fit(
    heads: nn.Module,
    states: States,
    targets: Classes,
    recipe: Recipe,
    *,
    seed: int,
    done: Callable[[int, int], None] | None = None,
) -> None:
    """Train all heads at once; `targets` are the classes of all items, or of all examples where heads pool items."""
    device = next(heads.parameters()).device
    count = len(states.lengths)
    each_epoch = math.ceil(count / recipe.batch)
    epochs = max(recipe.epochs, math.ceil(recipe.steps / each_epoch))
    steps = epochs * each_epoch
    optimizer = torch.optim.Adam(heads.parameters(), lr=recipe.rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    penalised = [heads.weight] if isinstance(heads, LinearHeads) else []
    chance = np.random.default_rng(seed)
    step = 0
    for _ in range(epochs):
        for batch in _batches(states, chance.permutation(count), recipe.batch, device):
            logits: Tensor = heads(batch.values, batch.layout)
            chosen = batch.places if len(targets) == count else batch.items
            right = torch.from_numpy(targets[chosen]).to(device)
            # Each head's own mean: the heads share no parameter, so that none disturbs another.
            loss = F.cross_entropy(logits.transpose(1, 2), right.expand(len(logits), -1), reduction="sum") / len(right)
            # scikit-learn's usual penalty (C = 1) on a mean over all examples.
            penalty = sum((weight.square().sum() for weight in penalised), start=torch.zeros((), device=device))
            optimizer.zero_grad()
            (loss + penalty / (2 * len(targets))).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            step += 1
            if done is not None:
                done(step, steps)


def predict(heads: nn.Module, states: States) -> Classes:
    """The class each head finds likeliest, (K, n), for all items or examples in order."""
    device = next(heads.parameters()).device
    batches = _batches(states, np.arange(len(states.lengths)), ASKED, device)
    with torch.inference_mode():
        found: list[Tensor] = [heads(one.values, one.layout).argmax(-1).cpu() for one in batches]
    classes: Classes = torch.cat(found, dim=1).numpy()
    return classes


@dataclass(frozen=True, eq=False)
class _Batch:
    """Some examples: their places, their items, the states of these (L, N, W) and how they lie."""

    places: Classes
    items: Classes
    values: Tensor
    layout: Packed


def _batches(states: States, order: Classes, size: int, device: torch.device) -> Iterator[_Batch]:
    """Examples in an order, `size` at a time."""
    lengths = np.array(states.lengths)
    starts = np.cumsum(lengths) - lengths
    for begin in range(0, len(order), size):
        places = order[begin : begin + size]
        layout = Packed.from_lengths(lengths[places].tolist())
        items = np.repeat(starts[places], lengths[places]) + layout.position_ids.numpy()
        yield _Batch(
            places,
            items,
            _tensor(states.values[:, items], device),
            Packed(layout.sizes, layout.starts.to(device), layout.position_ids.to(device), layout.max_length),
        )


def _tensor(values: NDArray[np.float16], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(device).float()
