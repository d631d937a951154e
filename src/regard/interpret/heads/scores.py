"""Sums over texts: how much of each head's attention falls where patterns point, and where shuffled ones would.

Knows arrays: weights (heads, T, T), and what `patterns` points at. Knows no model and no tokenizer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.interpret.heads import chance
from regard.interpret.heads.patterns import PATTERNS, POINTING, TokenizedText

__all__ = ["SHUFFLES", "PatternSums", "Top"]

SHUFFLES = 200
ROOM = 40_000_000  # numbers of shuffled targets that are held at a time
FEWEST = 4  # a row that sees fewer tokens is even whatever it does

Top = list[tuple[float, int, int, int, NDArray[np.float32]]]  # weight, text, row, column, the row's weights


class PatternSums:
    """Add texts one by one; then `totals` (heads, patterns), `draws` (SHUFFLES, heads, patterns), `tokens` (patterns).

    `best[head][pattern]` holds the strongest example of up to `shown` texts. The last pattern is "broad".
    """

    def __init__(self, heads: int, *, shown: int) -> None:
        self.totals = np.zeros((heads, len(PATTERNS)))
        self.draws = np.zeros((SHUFFLES, heads, len(PATTERNS)))
        self.tokens = np.zeros(len(PATTERNS), dtype=np.int64)
        self.best: list[list[Top]] = [[[] for _ in PATTERNS] for _ in range(heads)]
        self._shown = shown

    def add(
        self,
        text: int,
        line: TokenizedText,
        weights: NDArray[np.float32],
        found: NDArray[np.bool_],
        random: np.random.Generator,
        *,
        causal: bool,
    ) -> None:
        heads, length, _ = weights.shape
        flat = weights.reshape(heads, -1)
        pointing = found.reshape(len(POINTING), -1).astype(np.float32)
        self.totals[:, :-1] += flat @ pointing.T
        self.tokens[:-1] += found.any(-1).sum(-1)
        step = max(1, ROOM // pointing.size)
        for start in range(0, SHUFFLES, step):
            part = slice(start, min(start + step, SHUFFLES))
            moved = chance.shuffled(found, part.stop - part.start, random, causal=causal)
            by_chance = flat @ moved.reshape(-1, length * length).T
            self.draws[part, :, :-1] += by_chance.reshape(heads, -1, len(POINTING)).transpose(1, 0, 2)
        self._keep(text, weights, [weights * one for one in found])
        self._add_broad(text, line, weights, random, causal=causal)

    def _add_broad(
        self, text: int, line: TokenizedText, weights: NDArray[np.float32], random: np.random.Generator, *, causal: bool
    ) -> None:
        length = len(line.ids)
        seen = np.arange(1, length + 1) if causal else np.full(length, length)
        rows = np.flatnonzero(~np.array(line.special) & (seen >= FEWEST))
        if not len(rows):
            return
        shares = chance.even_share(weights[:, rows], seen[rows])
        self.totals[:, -1] += shares.sum(1)
        self.tokens[-1] += len(rows)
        self.draws[:, :, -1] += chance.random_shares(seen[rows], SHUFFLES, random)[:, None]
        for head, row in enumerate(rows[shares.argmax(1)].tolist()):
            column = int(weights[head, row].argmax())
            self._consider(head, len(PATTERNS) - 1, float(shares[head].max()), text, row, column, weights)

    def _keep(self, text: int, weights: NDArray[np.float32], parts: list[NDArray[np.float32]]) -> None:
        length = weights.shape[-1]
        for pattern, part in enumerate(parts):
            flat = part.reshape(len(part), -1)
            for head, place in enumerate(flat.argmax(1).tolist()):
                if flat[head, place] > 0:
                    row, column = divmod(place, length)
                    self._consider(head, pattern, float(flat[head, place]), text, row, column, weights)

    def _consider(
        self, head: int, pattern: int, value: float, text: int, row: int, column: int, weights: NDArray[np.float32]
    ) -> None:
        top = self.best[head][pattern]
        if len(top) < self._shown or value > top[-1][0]:
            top.append((value, text, row, column, weights[head, row].copy()))
            top.sort(key=lambda entry: -entry[0])
            del top[self._shown :]
