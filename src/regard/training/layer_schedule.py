"""A schedule per layer (ULM-FiT): lower layers are more general, so they learn later and with a lower learning rate.

Every parameter has a level, counted from the top: 0 for the task head, 1 for the last layer, up to depth + 1 for the
embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from regard.training.events import LayersScheduled

LAYER = re.compile(r"encoder\.(?:encoder|decoder)\.(?:layers|forwards|backwards)\.(\d+)\.")
EMBEDDING = "encoder.embedding."


@dataclass(frozen=True)
class LayerStart:
    """The first step, from 1, at which a layer is trained (None if it never is), and its peak learning rate.

    `layer` is 0 for the embeddings and None for the task head.
    """

    layer: int | None
    step: int | None
    learning_rate: float


@dataclass(frozen=True, eq=False)
class LayerSchedule:
    """Levels start evenly spaced over the first part `unfreeze` of the run, from the top; the learning rate of a level
    is `decay` times that of the level above it."""

    levels: Mapping[nn.Parameter, int]
    depth: int
    decay: float = 1.0
    unfreeze: float = 0.0

    def configure(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        if self.decay < 1:
            apply_layerwise_lr_decay(optimizers, self.levels, self.decay)

    def start_step(self, progress: float) -> None:
        if self.unfreeze:
            unfreeze_layers(self.levels, progress, self.unfreeze)

    def event(
        self, optimizers: Iterable[torch.optim.Optimizer], *, learning_rate: float, steps: int
    ) -> LayersScheduled:
        starts = layer_starts(
            optimizers,
            self.levels,
            depth=self.depth,
            learning_rate=learning_rate,
            unfreeze=self.unfreeze,
            steps=steps,
        )
        return LayersScheduled(steps=steps, layers=[asdict(start) for start in starts])


def parameter_levels(model: nn.Module, depth: int) -> dict[nn.Parameter, int]:
    """The level of each trainable parameter of a model with `depth` layers."""
    levels = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            layer = LAYER.match(name)
            levels[parameter] = depth - int(layer[1]) if layer else depth + 1 if name.startswith(EMBEDDING) else 0
    return levels


def apply_layerwise_lr_decay(
    optimizers: Iterable[torch.optim.Optimizer], levels: Mapping[nn.Parameter, int], decay: float
) -> None:
    """Split the parameter groups by level; the learning rate of a level is `decay` times that of the level above it."""
    for optimizer in optimizers:
        groups: list[dict[str, Any]] = []
        for group in optimizer.param_groups:
            for level in sorted({levels[parameter] for parameter in group["params"]}):
                parameters = [parameter for parameter in group["params"] if levels[parameter] == level]
                groups.append({**group, "params": parameters, "share": decay**level})
        optimizer.param_groups = groups


def unfreeze_layers(levels: Mapping[nn.Parameter, int], progress: float, unfreeze: float) -> None:
    """Unfreeze the levels that have started; they start evenly spaced over the first part `unfreeze` of the run."""
    lowest = _lowest_started(max(levels.values(), default=0), progress, unfreeze)
    for parameter, level in levels.items():
        parameter.requires_grad_(level <= lowest)


def layer_starts(
    optimizers: Iterable[torch.optim.Optimizer],
    levels: Mapping[nn.Parameter, int],
    *,
    depth: int,
    learning_rate: float,
    unfreeze: float,
    steps: int,
) -> list[LayerStart]:
    """The schedule that `unfreeze_layers` and the optimizers' groups follow, from the top layer down."""
    highest = max(levels.values(), default=0)
    factors = {
        levels[parameter]: float(group.get("share", 1.0))
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    first_steps: dict[int, int] = {}
    for step in range(steps):
        lowest = _lowest_started(highest, step / steps, unfreeze)
        for level in range(len(first_steps), lowest + 1):
            first_steps[level] = step + 1
        if lowest == highest:
            break
    return [
        LayerStart(depth + 1 - level if level else None, first_steps.get(level), learning_rate * factor)
        for level, factor in sorted(factors.items())
    ]


def _lowest_started(highest: int, progress: float, unfreeze: float) -> int:
    return highest if progress >= unfreeze else int(progress / unfreeze * highest)
