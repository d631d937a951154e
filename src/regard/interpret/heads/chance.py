"""What chance would give: shuffled tokens, a tail of Student's t, and Holm's correction.

Knows arrays and probability. Knows no model and no text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["even_share", "holm", "random_shares", "shuffled", "tail"]

Floats = NDArray[np.float64]


def shuffled(found: NDArray[np.bool_], count: int, random: np.random.Generator, *, causal: bool) -> NDArray[np.float32]:
    """`found` (P, T, T) as if the tokens looked at stood elsewhere: (count, P, T, T), one shuffle for all rows.

    In a causal map a row's tokens are shuffled among those it can see.
    """
    length = found.shape[-1]
    keys = random.random((count, length))
    if not causal:
        return np.moveaxis(found[:, :, np.argsort(keys, axis=1)], 2, 0).astype(np.float32)
    result = np.zeros((count, *found.shape), dtype=np.float32)
    for row in range(length):
        order = np.argsort(keys[:, : row + 1], axis=1)
        result[:, :, row, : row + 1] = np.moveaxis(found[:, row, :][:, order], 1, 0)
    return result


def even_share(weights: NDArray[np.floating], visible: NDArray[np.int64]) -> Floats:
    """How much of what it sees a row uses, from 0 to 1: the exponential of its entropy over the tokens it can see."""
    exact = weights.astype(np.float64)
    entropy = -(exact * np.log(np.maximum(exact, 1e-30))).sum(-1)
    shares: Floats = np.exp(entropy) / visible
    return shares


def random_shares(visible: NDArray[np.int64], count: int, random: np.random.Generator) -> Floats:
    """The sum over rows of `even_share` where each row's weights are a stick broken at random; `count` draws."""
    totals = np.zeros(count)
    for seen in visible.tolist():
        pieces = random.exponential(size=(count, seen))
        totals += even_share(pieces / pieces.sum(1, keepdims=True), np.array(seen))
    return totals


def tail(value: float, draws: Floats) -> float:
    """The probability that one more draw would be `value` or more, if draws are normal: Student's t.

    Its tail is approximated by the normal one (Abramowitz and Stegun, 26.7.8); 1 where the draws never differ.
    """
    count = len(draws)
    spread = float(draws.std(ddof=1))
    if spread <= 1e-12 * max(1.0, abs(float(draws.mean()))):
        return 1.0 if value <= float(draws.mean()) + 1e-9 else 0.0
    t = (value - float(draws.mean())) / (spread * math.sqrt(1 + 1 / count))
    freedom = count - 1
    z = t * (1 - 1 / (4 * freedom)) / math.sqrt(1 + t * t / (2 * freedom))
    return 0.5 * math.erfc(z / math.sqrt(2))


def holm(chances: Sequence[float]) -> list[float]:
    """Holm's correction: all p-values below a level together are wrong somewhere with at most that probability."""
    order = sorted(range(len(chances)), key=lambda place: chances[place])
    corrected = [1.0] * len(chances)
    most = 0.0
    for rank, place in enumerate(order):
        most = max(most, min(1.0, (len(chances) - rank) * chances[place]))
        corrected[place] = most
    return corrected
