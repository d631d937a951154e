"""How far a score would move with other examples: the percentile bootstrap. Knows indices, not what they choose.

The interval speaks of the examples that were scored. It says nothing of another seed in training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError

__all__ = ["interval", "mean_interval"]


def interval(
    score: Callable[[NDArray[np.int64]], float],
    count: int,
    *,
    rounds: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Between which two values lies `level` of the scores of `rounds` samples.

    A sample is `count` indices below `count`, drawn with replacement; `score` says what that choice of examples gets.
    """
    if count < 1:
        raise InputError(f"an interval needs at least one example, got {count}")
    if rounds < 1 or not 0 < level < 1:
        raise InputError(f"rounds is {rounds} and level {level}; expected at least 1 round and a level between 0 and 1")
    chance = np.random.default_rng(seed)
    found = [score(chance.integers(count, size=count)) for _ in range(rounds)]
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mean_interval(
    values: Sequence[float] | NDArray[np.float64], *, rounds: int = 1000, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """The interval of a mean, such as accuracy over examples that are 0 or 100."""
    array = np.asarray(values, dtype=np.float64)
    return interval(lambda chosen: float(array[chosen].mean()), len(array), rounds=rounds, level=level, seed=seed)
