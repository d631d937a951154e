"""Trains all probing heads in one loop on stored hidden states, and predicts with them.

The same seed gives the same heads. Nothing is selected by looking at the examples that are scored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.interpret.probes.hidden_states import HiddenStates
from regard.interpret.probes.probe_heads import LayerFeatures, LinearHeads
from regard.nn.masks import Packed

PREDICTION_BATCH = 1024  # examples

Classes = NDArray[np.int64]


@dataclass(frozen=True)
class ProbeRecipe:
    """At least `epochs` and at least `steps` of Adam; the learning rate decays linearly to zero."""

    batch_size: int
    epochs: int
    steps: int
    learning_rate: float


LINEAR = ProbeRecipe(batch_size=1024, epochs=5, steps=400, learning_rate=3e-2)
BILSTM = ProbeRecipe(batch_size=32, epochs=3, steps=300, learning_rate=1e-3)


def standardize(features: LayerFeatures, states: HiddenStates) -> None:
    """Set the mean and standard deviation of every feature from all items."""
    device = features.mean.device
    total = torch.zeros(features.mean.shape, dtype=torch.float64, device=device)
    squares = torch.zeros_like(total)
    count = states.values.shape[1]
    center: Tensor | None = None
    for start in range(0, count, 4096):
        raw = features.raw(_tensor(states.values[:, start : start + 4096], device))
        # Centered, the sum of squares loses no precision in float32.
        center = raw.mean(1, keepdim=True) if center is None else center
        raw = raw - center
        total += raw.sum(1, keepdim=True)
        squares += raw.square().sum(1, keepdim=True)
    assert center is not None
    mean = total / count
    deviation = (squares / count - mean.square()).clamp(min=0).sqrt()
    features.mean.copy_(mean + center)
    # Constant features are not divided by almost zero.
    features.deviation.copy_(torch.where(deviation > 1e-4, deviation, 1.0))


def fit(
    heads: nn.Module,
    states: HiddenStates,
    targets: Classes,
    recipe: ProbeRecipe,
    *,
    seed: int,
) -> Iterator[tuple[int, int]]:
    """Train all heads together; yields the step and the number of steps after each one.

    `targets` are the classes of all items, or of all examples if the heads pool items.
    """
    device = next(heads.parameters()).device
    count = len(states.lengths)
    each_epoch = math.ceil(count / recipe.batch_size)
    epochs = max(recipe.epochs, math.ceil(recipe.steps / each_epoch))
    steps = epochs * each_epoch
    optimizer = torch.optim.Adam(heads.parameters(), lr=recipe.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    penalized = [heads.weight] if isinstance(heads, LinearHeads) else []
    rng = np.random.default_rng(seed)
    step = 0
    for _ in range(epochs):
        for batch in _batches(states, rng.permutation(count), recipe.batch_size, device):
            logits: Tensor = heads(batch.values, batch.layout)
            indices = batch.examples if len(targets) == count else batch.items
            right = torch.from_numpy(targets[indices]).to(device)
            # The mean per head: heads share no parameters, so that none affects another.
            loss = F.cross_entropy(logits.transpose(1, 2), right.expand(len(logits), -1), reduction="sum") / len(right)
            # scikit-learn's default penalty (C = 1) on a mean over all examples.
            penalty = sum((weight.square().sum() for weight in penalized), start=torch.zeros((), device=device))
            optimizer.zero_grad()
            (loss + penalty / (2 * len(targets))).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            step += 1
            yield step, steps


def predict(heads: nn.Module, states: HiddenStates) -> Classes:
    """The most probable class of each head, (K, n), for all items or examples in order."""
    device = next(heads.parameters()).device
    batches = _batches(states, np.arange(len(states.lengths)), PREDICTION_BATCH, device)
    with torch.inference_mode():
        predictions: list[Tensor] = [heads(one.values, one.layout).argmax(-1).cpu() for one in batches]
    classes: Classes = torch.cat(predictions, dim=1).numpy()
    return classes


@dataclass(frozen=True, eq=False)
class _Batch:
    """The indices of some examples and of their items, the hidden states (L, N, W) and the layout."""

    examples: Classes
    items: Classes
    values: Tensor
    layout: Packed


def _batches(states: HiddenStates, order: Classes, size: int, device: torch.device) -> Iterator[_Batch]:
    """Batches of `size` examples in the given order."""
    lengths = np.array(states.lengths)
    starts = np.cumsum(lengths) - lengths
    for begin in range(0, len(order), size):
        examples = order[begin : begin + size]
        layout = Packed.from_lengths(lengths[examples].tolist())
        items = np.repeat(starts[examples], lengths[examples]) + layout.position_ids.numpy()
        yield _Batch(
            examples,
            items,
            _tensor(states.values[:, items], device),
            Packed(layout.sizes, layout.starts.to(device), layout.position_ids.to(device), layout.max_length),
        )


def _tensor(values: NDArray[np.float16], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(device).float()
