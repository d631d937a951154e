"""Known patterns of attention heads, and sums over texts that test them against chance.

A pattern points from tokens to their targets. A score is the share of attention that falls on targets; chance is the
score with permuted key tokens.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.text import Encoding

INDUCTION = "induction"
BROAD = "broad"
ABOUT = {
    "next word": "attends to the next token",
    "previous word": "attends to the previous token",
    "same or related word": "attends to the same token, or a related one, elsewhere in its sentence",
    "same or related word in the other sentence": "attends to the same token, or a related one, in the other sentence",
    "delimiter": "attends to [CLS] and [SEP], or the special tokens that take their place",
    "predictive words": "attends to words that occur in the same texts as its own more often than by chance",
    INDUCTION: "attends to the token that followed its own token before, in repeated random tokens",
    BROAD: "attends to all tokens, more evenly than by chance",
}
PATTERNS = tuple(ABOUT)
POINTING = PATTERNS[:-1]  # patterns with targets; a broad head has none

NEIGHBORS = 10  # a related token is among this many nearest neighbors in the vocabulary
MIN_COSINE = 0.4  # and the cosine of their centered embeddings is at least this
MIN_SHARED = 3  # predictive words share at least this many texts
MIN_NPMI = 0.5  # and their normalized pointwise mutual information is at least this
Bools = NDArray[np.bool_]


def targets(
    text: Encoding, related: frozenset[tuple[int, int]], predictive: frozenset[tuple[int, int]], *, causal: bool
) -> Bools:
    """Whether each token points at each other one, for every pattern in POINTING: (patterns, T, T).

    Special tokens point at nothing and only "delimiter" points at them; in a causal model nothing points ahead. A text
    has no targets of "induction".
    """
    ids, segments = np.array(text.ids), np.array(text.segments)
    word = ~np.array(text.special_tokens_mask)
    positions = np.arange(len(ids))
    distance = positions[None] - positions[:, None]
    same_text = segments[:, None] == segments[None]
    alike = (ids[:, None] == ids[None]) | _among(ids, related)
    bound = _among(ids, predictive) & ~alike
    words = word[:, None] & word[None]
    result = np.stack(
        [
            (distance == 1) & same_text & words,
            (distance == -1) & same_text & words,
            alike & same_text & (distance != 0) & words,
            alike & ~same_text & words,
            word[:, None] & ~word[None],
            bound & words,
            np.zeros_like(words),
        ]
    )
    return result & (distance <= 0) if causal else result


def induction_targets(ids: NDArray[np.int64]) -> Bools:
    """The targets of "induction" for ids that are read twice: the successor of each id's previous occurrence."""
    length = len(ids)
    result = np.zeros((len(POINTING), length, length), dtype=bool)
    previous: dict[int, int] = {}
    for row, token in enumerate(ids.tolist()):
        if token in previous:
            result[POINTING.index(INDUCTION), row, previous[token] + 1] = True
        previous[token] = row
    return result


def _among(ids: NDArray[np.int64], pairs: frozenset[tuple[int, int]]) -> Bools:
    listed = ids.tolist()
    return np.array([[(min(a, b), max(a, b)) in pairs for b in listed] for a in listed], dtype=bool)


def related_pairs(ids: Iterable[int], vectors: NDArray[np.float32]) -> frozenset[tuple[int, int]]:
    """Pairs of tokens of which one is among the other's nearest neighbors by their embeddings `vectors` (V, W)."""
    known = np.array(sorted(set(ids)))
    centered = vectors - vectors.mean(0)
    units = centered / np.maximum(np.linalg.norm(centered, axis=1, keepdims=True), 1e-12)
    wanted = set(known.tolist())
    pairs = set()
    for start in range(0, len(known), 256):
        rows = known[start : start + 256]
        cosines = units[rows] @ units.T
        cosines[np.arange(len(rows)), rows] = -1
        count = min(NEIGHBORS, cosines.shape[1] - 1)
        near = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        for row, token in enumerate(rows.tolist()):
            for other in near[row].tolist():
                if other in wanted and cosines[row, other] >= MIN_COSINE:
                    pairs.add((min(token, other), max(token, other)))
    return frozenset(pairs)


def predictive_pairs(encodings: Sequence[Encoding]) -> frozenset[tuple[int, int]]:
    """Pairs of tokens that share texts more often than by chance, by normalized pointwise mutual information."""
    texts = [
        sorted({i for i, special in zip(one.ids, one.special_tokens_mask, strict=True) if not special})
        for one in encodings
    ]
    alone = Counter(token for text in texts for token in text)
    often = {token for token, count in alone.items() if count >= MIN_SHARED}
    together = Counter(pair for text in texts for pair in combinations([t for t in text if t in often], 2))
    total = len(texts)
    return frozenset(
        pair for pair, count in together.items() if _npmi(count, alone[pair[0]], alone[pair[1]], total) >= MIN_NPMI
    )


def _npmi(count: int, first: int, second: int, total: int) -> float:
    """Normalized pointwise mutual information, from -1 to 1; -1 for pairs that are rare or in every text."""
    if count < MIN_SHARED or count == total:
        return -1.0
    return math.log(count * total / (first * second)) / -math.log(count / total)


SHUFFLES = 200
MAX_SHUFFLED = 40_000_000  # numbers of shuffled targets in memory at a time
MIN_VISIBLE = 4  # a row that sees fewer tokens is even whatever its weights are
Example = tuple[float, int, int, int, NDArray[np.float32]]  # weight, text, row, column, the row's weights


class PatternSums:
    """Sums over texts: `totals` (heads, patterns), `draws` (SHUFFLES, heads, patterns) and `tokens` (patterns).

    `squares`, `products` and `squared_tokens` are sums of squares and products of a text's total and its tokens.
    `best[head][pattern]` holds the strongest example of up to `max_examples` texts. The last pattern is "broad".
    """

    def __init__(self, heads: int, *, max_examples: int) -> None:
        self.totals = np.zeros((heads, len(PATTERNS)))
        self.draws = np.zeros((SHUFFLES, heads, len(PATTERNS)))
        self.tokens = np.zeros(len(PATTERNS), dtype=np.int64)
        self.texts = np.zeros(len(PATTERNS), dtype=np.int64)
        self.squares, self.products = np.zeros_like(self.totals), np.zeros_like(self.totals)
        self.squared_tokens = np.zeros(len(PATTERNS))
        self.best: list[list[list[Example]]] = [[[] for _ in PATTERNS] for _ in range(heads)]
        self._max_examples = max_examples

    def add(
        self,
        text: int,
        encoding: Encoding,
        weights: NDArray[np.float32],
        targets: NDArray[np.bool_],
        random: np.random.Generator,
        *,
        causal: bool,
    ) -> None:
        """Add a text with its attention weights and the targets of each pattern (patterns, T, T)."""
        self.add_pointing(text, weights, targets, random, causal=causal)
        length = weights.shape[-1]
        visible = np.arange(1, length + 1) if causal else np.full(length, length)
        rows = np.flatnonzero(~np.array(encoding.special_tokens_mask) & (visible >= MIN_VISIBLE))
        if not len(rows):
            return
        values = evenness(weights[:, rows], visible[rows])
        self._add_totals(slice(-1, None), values.sum(1)[:, None], np.array([len(rows)]))
        self.draws[:, :, -1] += random_evenness(visible[rows], SHUFFLES, random)[:, None]
        for head, row in enumerate(rows[values.argmax(1)].tolist()):
            column = int(weights[head, row].argmax())
            self._add_example(head, len(PATTERNS) - 1, float(values[head].max()), text, row, column, weights)

    def add_pointing(
        self,
        text: int,
        weights: NDArray[np.float32],
        targets: NDArray[np.bool_],
        random: np.random.Generator,
        *,
        causal: bool,
    ) -> None:
        """Add a text for the patterns that have targets in it, and not for "broad"."""
        heads, length, _ = weights.shape
        patterns = np.flatnonzero(targets.any((1, 2)))
        if not len(patterns):
            return
        targets, flat = targets[patterns], weights.reshape(heads, -1)
        pointing = targets.reshape(len(patterns), -1).astype(np.float32)
        self._add_totals(patterns, flat @ pointing.T, targets.any(-1).sum(-1))
        step = max(1, MAX_SHUFFLED // pointing.size)
        for start in range(0, SHUFFLES, step):
            part = slice(start, min(start + step, SHUFFLES))
            moved = shuffle_targets(targets, part.stop - part.start, random, causal=causal)
            by_chance = flat @ moved.reshape(-1, length * length).T
            self.draws[part, :, patterns] += by_chance.reshape(heads, -1, len(patterns)).transpose(1, 0, 2)
        for pattern, one in zip(patterns.tolist(), targets, strict=True):
            on_targets = (weights * one).reshape(heads, -1)
            for head, index in enumerate(on_targets.argmax(1).tolist()):
                if on_targets[head, index] > 0:
                    row, column = divmod(index, length)
                    self._add_example(head, pattern, float(on_targets[head, index]), text, row, column, weights)

    def _add_totals(self, patterns: Any, totals: NDArray[np.floating], tokens: NDArray[np.int64]) -> None:
        """Add the totals (heads, patterns) and the tokens (patterns) of one text."""
        exact = totals.astype(np.float64)
        self.totals[:, patterns] += exact
        self.squares[:, patterns] += exact**2
        self.products[:, patterns] += exact * tokens
        self.tokens[patterns] += tokens
        self.squared_tokens[patterns] += tokens.astype(np.float64) ** 2
        self.texts[patterns] += 1

    def interval(self, head: int, pattern: int) -> tuple[float, float] | None:
        """The 95% confidence interval of a score, as a ratio of sums over texts; None for fewer than three texts."""
        texts, tokens = int(self.texts[pattern]), int(self.tokens[pattern])
        if texts < 3:
            return None
        score = self.totals[head, pattern] / tokens
        residual = self.squares[head, pattern] - 2 * score * self.products[head, pattern]
        residual += score**2 * self.squared_tokens[pattern]
        error = math.sqrt(max(0.0, residual) * texts / (texts - 1)) / tokens
        margin = t_quantile(texts - 1) * error
        return max(0.0, score - margin), min(1.0, score + margin)

    def _add_example(
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


def t_quantile(degrees: int) -> float:
    """The 97.5% quantile of Student's t for two or more degrees of freedom (Abramowitz and Stegun, 26.7.5)."""
    z = 1.959963984540054
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / degrees**power for power, term in enumerate(terms))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of p-values: it controls the probability of any false finding among them."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
