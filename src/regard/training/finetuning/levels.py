"""Which layers of a model learn when, and how fast: counted from the top, where the new layer is.

Knows parameters by name, and optimizers by their groups. Knows no data and no losses. Both are ULM-FiT's: the layers
near the words know what is the same for all tasks, so they change less and later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

__all__ = ["Turn", "levels", "slower", "thaw", "turns"]

LAYER = re.compile(r"encoder\.(?:encoder|decoder)\.(?:layers|forwards|backwards)\.(\d+)\.")
EMBEDDING = "encoder.embedding."


@dataclass(frozen=True)
class Turn:
    """A level, the step from 1 with which it begins to learn (None: not in this run), and its rate before the schedule.

    Layers have the numbers that `Layers` gives them, 0 is the embeddings; what is new is `None`.
    """

    layer: int | None
    step: int | None
    rate: float


def levels(model: nn.Module, depth: int) -> dict[nn.Parameter, int]:
    """The level of each parameter that learns: 0 for what is new, 1 for the last layer, to depth + 1 for embeddings."""
    found = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            layer = LAYER.match(name)
            level = depth - int(layer[1]) if layer else depth + 1 if name.startswith(EMBEDDING) else 0
            found[parameter] = level
    return found


def slower(optimizers: Iterable[torch.optim.Optimizer], level: Mapping[nn.Parameter, int], decay: float) -> None:
    """Let each level learn at `decay` times the rate of the level above it."""
    for optimizer in optimizers:
        groups: list[dict[str, Any]] = []
        for group in optimizer.param_groups:
            for number in sorted({level[parameter] for parameter in group["params"]}):
                parameters = [parameter for parameter in group["params"] if level[parameter] == number]
                groups.append({**group, "params": parameters, "share": decay**number})
        optimizer.param_groups = groups


def thaw(level: Mapping[nn.Parameter, int], progress: float, unfreeze: float) -> None:
    """Let those learn whose time has come: of levels that begin evenly over the share `unfreeze` of the run."""
    reached = _reached(max(level.values(), default=0), progress, unfreeze)
    for parameter, number in level.items():
        parameter.requires_grad_(number <= reached)


def turns(
    optimizers: Iterable[torch.optim.Optimizer],
    level: Mapping[nn.Parameter, int],
    *,
    depth: int,
    rate: float,
    unfreeze: float,
    steps: int,
) -> list[Turn]:
    """When each level begins to learn and at which rate, from the top, as `thaw` and the optimizers' groups have it."""
    highest = max(level.values(), default=0)
    shares = {
        level[parameter]: float(group.get("share", 1.0))
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    begins: dict[int, int] = {}
    for number in range(steps):
        reached = _reached(highest, number / steps, unfreeze)
        for now in range(len(begins), reached + 1):
            begins[now] = number + 1
        if reached == highest:
            break
    return [
        Turn(depth + 1 - now if now else None, begins.get(now), rate * share) for now, share in sorted(shares.items())
    ]


def _reached(highest: int, progress: float, unfreeze: float) -> int:
    """The last level that learns."""
    return highest if progress >= unfreeze else int(progress / unfreeze * highest)
