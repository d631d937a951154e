"""How much of each head's attention falls on the targets of a pattern, and how much would by chance.

Works on arrays: weights (heads, T, T), and the targets of `patterns`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.interpret.heads.patterns import PATTERNS, POINTING, TokenizedText

SHUFFLES = 200
MAX_SHUFFLED = 40_000_000  # numbers of shuffled targets in memory at a time
MIN_VISIBLE = 4  # a row that sees fewer tokens is even whatever its weights are

Example = tuple[float, int, int, int, NDArray[np.float32]]  # weight, text, row, column, the row's weights


class PatternSums:
    """Sums over texts: `totals` (heads, patterns), `draws` (SHUFFLES, heads, patterns) and `tokens` (patterns).

    `best[head][pattern]` holds the strongest example of up to `max_examples` texts. The last pattern is "broad".
    """

    def __init__(self, heads: int, *, max_examples: int) -> None:
        self.totals = np.zeros((heads, len(PATTERNS)))
        self.draws = np.zeros((SHUFFLES, heads, len(PATTERNS)))
        self.tokens = np.zeros(len(PATTERNS), dtype=np.int64)
        self.best: list[list[list[Example]]] = [[[] for _ in PATTERNS] for _ in range(heads)]
        self._max_examples = max_examples

    def add(
        self,
        text: int,
        tokenized: TokenizedText,
        weights: NDArray[np.float32],
        targets: NDArray[np.bool_],
        random: np.random.Generator,
        *,
        causal: bool,
    ) -> None:
        """Add a text with its attention weights and the targets of each pattern (patterns, T, T)."""
        heads, length, _ = weights.shape
        flat = weights.reshape(heads, -1)
        pointing = targets.reshape(len(POINTING), -1).astype(np.float32)
        self.totals[:, :-1] += flat @ pointing.T
        self.tokens[:-1] += targets.any(-1).sum(-1)
        step = max(1, MAX_SHUFFLED // pointing.size)
        for start in range(0, SHUFFLES, step):
            part = slice(start, min(start + step, SHUFFLES))
            moved = shuffle_targets(targets, part.stop - part.start, random, causal=causal)
            by_chance = flat @ moved.reshape(-1, length * length).T
            self.draws[part, :, :-1] += by_chance.reshape(heads, -1, len(POINTING)).transpose(1, 0, 2)
        self._keep(text, weights, [weights * one for one in targets])
        self._add_broad(text, tokenized, weights, random, causal=causal)

    def _add_broad(
        self,
        text: int,
        tokenized: TokenizedText,
        weights: NDArray[np.float32],
        random: np.random.Generator,
        *,
        causal: bool,
    ) -> None:
        length = len(tokenized.ids)
        visible = np.arange(1, length + 1) if causal else np.full(length, length)
        rows = np.flatnonzero(~np.array(tokenized.special) & (visible >= MIN_VISIBLE))
        if not len(rows):
            return
        values = evenness(weights[:, rows], visible[rows])
        self.totals[:, -1] += values.sum(1)
        self.tokens[-1] += len(rows)
        self.draws[:, :, -1] += random_evenness(visible[rows], SHUFFLES, random)[:, None]
        for head, row in enumerate(rows[values.argmax(1)].tolist()):
            column = int(weights[head, row].argmax())
            self._consider(head, len(PATTERNS) - 1, float(values[head].max()), text, row, column, weights)

    def _keep(self, text: int, weights: NDArray[np.float32], parts: list[NDArray[np.float32]]) -> None:
        length = weights.shape[-1]
        for pattern, part in enumerate(parts):
            flat = part.reshape(len(part), -1)
            for head, index in enumerate(flat.argmax(1).tolist()):
                if flat[head, index] > 0:
                    row, column = divmod(index, length)
                    self._consider(head, pattern, float(flat[head, index]), text, row, column, weights)

    def _consider(
        self, head: int, pattern: int, value: float, text: int, row: int, column: int, weights: NDArray[np.float32]
    ) -> None:
        top = self.best[head][pattern]
        if len(top) < self._max_examples or value > top[-1][0]:
            top.append((value, text, row, column, weights[head, row].copy()))
            top.sort(key=lambda entry: -entry[0])
            del top[self._max_examples :]


def shuffle_targets(
    targets: NDArray[np.bool_], count: int, random: np.random.Generator, *, causal: bool
) -> NDArray[np.float32]:
    """`targets` (P, T, T) with permuted columns: (count, P, T, T), one permutation for all rows.

    In a causal map, each row permutes the tokens that it can see.
    """
    length = targets.shape[-1]
    keys = random.random((count, length))
    if not causal:
        return np.moveaxis(targets[:, :, np.argsort(keys, axis=1)], 2, 0).astype(np.float32)
    result = np.zeros((count, *targets.shape), dtype=np.float32)
    for row in range(length):
        order = np.argsort(keys[:, : row + 1], axis=1)
        result[:, :, row, : row + 1] = np.moveaxis(targets[:, row, :][:, order], 1, 0)
    return result


def evenness(weights: NDArray[np.floating], visible: NDArray[np.int64]) -> NDArray[np.float64]:
    """From 0 to 1: the exponential of each row's entropy, divided by the number of tokens that the row can see."""
    exact = weights.astype(np.float64)
    entropy = -(exact * np.log(np.maximum(exact, 1e-30))).sum(-1)
    result: NDArray[np.float64] = np.exp(entropy) / visible
    return result


def random_evenness(visible: NDArray[np.int64], count: int, random: np.random.Generator) -> NDArray[np.float64]:
    """`count` draws of the sum over rows of `evenness`, for weights drawn uniformly from the simplex."""
    totals = np.zeros(count)
    for size in visible.tolist():
        pieces = random.exponential(size=(count, size))
        totals += evenness(pieces / pieces.sum(1, keepdims=True), np.array(size))
    return totals


def p_value(value: float, draws: NDArray[np.float64]) -> float:
    """The probability that another draw is `value` or more, if draws are normal: one-sided t-test.

    The tail of Student's t is approximated by the normal one (Abramowitz and Stegun, 26.7.8).
    """
    count = len(draws)
    spread = float(draws.std(ddof=1))
    if spread <= 1e-12 * max(1.0, abs(float(draws.mean()))):
        return 1.0 if value <= float(draws.mean()) + 1e-9 else 0.0
    t = (value - float(draws.mean())) / (spread * math.sqrt(1 + 1 / count))
    degrees = count - 1
    z = t * (1 - 1 / (4 * degrees)) / math.sqrt(1 + t * t / (2 * degrees))
    return 0.5 * math.erfc(z / math.sqrt(2))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of p-values: it controls the probability of any false finding among them."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
