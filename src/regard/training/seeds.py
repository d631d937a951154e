"""Seeds of seeds: what chance decides in a step follows from the run's seed and the step alone."""

from __future__ import annotations

import numpy as np

__all__ = ["mixed"]


def mixed(*numbers: int) -> int:
    """One seed of several numbers, all of which matter."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]) >> 1
