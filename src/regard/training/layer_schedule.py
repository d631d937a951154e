"""A schedule per layer (ULM-FiT): lower layers are more general, so they learn later and with a lower learning rate.

Every parameter has a level, counted from the top: 0 for the task head, 1 for the last layer, up to depth + 1 for the
embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from regard.training.events import LayersScheduled

LAYER = re.compile(r"encoder\.(?:encoder|decoder)\.(?:layers|forwards|backwards)\.(\d+)\.")
EMBEDDING = "encoder.embedding."


@dataclass(frozen=True, eq=False)
class LayerSchedule:
    """Levels start evenly spaced over the first part `unfreeze` of the run, from the top; the learning rate of a level
    is `decay` times that of the level above it."""

    levels: Mapping[nn.Parameter, int]
    depth: int
    decay: float = 1.0
    unfreeze: float = 0.0

    def configure(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Split the parameter groups by level, each with its share of the learning rate."""
        for optimizer in optimizers if self.decay < 1 else ():
            groups: list[dict[str, Any]] = []
            for group in optimizer.param_groups:
                for level in sorted({self.levels[parameter] for parameter in group["params"]}):
                    parameters = [parameter for parameter in group["params"] if self.levels[parameter] == level]
                    groups.append({**group, "params": parameters, "share": self.decay**level})
            optimizer.param_groups = groups

    def start_step(self, progress: float) -> None:
        """Unfreeze the levels that have started."""
        if self.unfreeze:
            lowest = self._lowest_started(progress)
            for parameter, level in self.levels.items():
                parameter.requires_grad_(level <= lowest)

    def event(
        self, optimizers: Iterable[torch.optim.Optimizer], *, learning_rate: float, steps: int
    ) -> LayersScheduled:
        """The first step, from 1, at which each layer is trained (None if it never is), and its peak learning rate.

        From the top layer down: `layer` is None for the task head and 0 for the embeddings.
        """
        factors = {
            self.levels[parameter]: float(group.get("share", 1.0))
            for optimizer in optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        first_steps: dict[int, int] = {}
        for step in range(steps):
            for level in range(len(first_steps), self._lowest_started(step / steps) + 1):
                first_steps[level] = step + 1
            if len(first_steps) > self._highest:
                break
        layers: list[dict[str, Any]] = [
            {
                "layer": self.depth + 1 - level if level else None,
                "step": first_steps.get(level),
                "learning_rate": learning_rate * factor,
            }
            for level, factor in sorted(factors.items())
        ]
        return LayersScheduled(steps=steps, layers=layers)

    @cached_property
    def _highest(self) -> int:
        return max(self.levels.values(), default=0)

    def _lowest_started(self, progress: float) -> int:
        return self._highest if progress >= self.unfreeze else int(progress / self.unfreeze * self._highest)


def parameter_levels(model: nn.Module, depth: int) -> dict[nn.Parameter, int]:
    """The level of each trainable parameter of a model with `depth` layers."""
    levels = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            layer = LAYER.match(name)
            levels[parameter] = depth - int(layer[1]) if layer else depth + 1 if name.startswith(EMBEDDING) else 0
    return levels
