"""The patterns that heads of attention are known for: for each token of a text, the tokens that a pattern points at.

Knows tokens, their places and which of them are alike. Knows no model and no weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log

import numpy as np
from numpy.typing import NDArray

__all__ = ["ABOUT", "BROAD", "PATTERNS", "POINTING", "TokenizedText", "predictive_pairs", "related_pairs", "targets"]

BROAD = "broad"
ABOUT = {
    "next word": "looks at the token behind its own",
    "previous word": "looks at the token before its own",
    "same or related word": "looks at the same token, or a related one, elsewhere in its sentence",
    "same or related word in the other sentence": "looks at the same token, or a related one, in the other sentence",
    "delimiter": "looks at [CLS] and [SEP], or what the tokenizer puts around texts in their stead",
    "predictive words": "looks at words that come together with its own in these texts more often than by chance",
    BROAD: "looks at everything, more evenly than chance would",
}
PATTERNS = tuple(ABOUT)
POINTING = PATTERNS[:-1]  # those that point at some tokens; to be broad is to point at none

NEIGHBOURS = 10  # a related token is among so many nearest in the vocabulary
ALIKE = 0.4  # and the cosine of their vectors, less the mean of all, is at least this
TOGETHER = 3  # predictive words share at least so many texts
BOUND = 0.5  # and their normalised pointwise mutual information is at least this

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class TokenizedText:
    """A text or a pair as tokens. `segments`: 0 or 1 a token; `special`: what the tokenizer put around the texts."""

    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    segments: tuple[int, ...]
    special: tuple[bool, ...]


def targets(
    line: TokenizedText, related: frozenset[tuple[int, int]], predictive: frozenset[tuple[int, int]], *, causal: bool
) -> Bools:
    """Which token (last axis) each token points at, for each of POINTING: (patterns, T, T).

    Special tokens point at nothing and only "delimiter" points at them; in a causal model nothing points ahead.
    """
    ids, segments = np.array(line.ids), np.array(line.segments)
    word = ~np.array(line.special)
    places = np.arange(len(ids))
    step = places[None] - places[:, None]
    here = segments[:, None] == segments[None]
    alike = (ids[:, None] == ids[None]) | _among(ids, related)
    bound = _among(ids, predictive) & ~alike
    words = word[:, None] & word[None]
    found = np.stack(
        [
            (step == 1) & here & words,
            (step == -1) & here & words,
            alike & here & (step != 0) & words,
            alike & ~here & words,
            word[:, None] & ~word[None],
            bound & words,
        ]
    )
    return found & (step <= 0) if causal else found


def _among(ids: NDArray[np.int64], pairs: frozenset[tuple[int, int]]) -> Bools:
    listed = ids.tolist()
    return np.array([[(min(a, b), max(a, b)) in pairs for b in listed] for a in listed], dtype=bool)


def related_pairs(ids: Iterable[int], vectors: NDArray[np.float32]) -> frozenset[tuple[int, int]]:
    """Pairs of different tokens of which one is among the other's nearest, by the vectors (V, W) a model reads with."""
    known = np.array(sorted(set(ids)))
    centred = vectors - vectors.mean(0)
    units = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    wanted = set(known.tolist())
    found = set()
    for start in range(0, len(known), 256):
        rows = known[start : start + 256]
        cosines = units[rows] @ units.T
        cosines[np.arange(len(rows)), rows] = -1
        count = min(NEIGHBOURS, cosines.shape[1] - 1)
        near = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        for row, token in enumerate(rows.tolist()):
            for other in near[row].tolist():
                if other in wanted and cosines[row, other] >= ALIKE:
                    found.add((min(token, other), max(token, other)))
    return frozenset(found)


def predictive_pairs(lines: Sequence[TokenizedText]) -> frozenset[tuple[int, int]]:
    """Pairs of different tokens that share texts more often than by chance: straw and berries."""
    texts = [sorted({i for i, special in zip(line.ids, line.special, strict=True) if not special}) for line in lines]
    alone = Counter(token for text in texts for token in text)
    often = {token for token, count in alone.items() if count >= TOGETHER}
    together = Counter(pair for text in texts for pair in combinations([t for t in text if t in often], 2))
    total = len(texts)
    return frozenset(
        pair for pair, count in together.items() if _bound(count, alone[pair[0]], alone[pair[1]], total) >= BOUND
    )


def _bound(count: int, first: int, second: int, total: int) -> float:
    """Normalised pointwise mutual information, from -1 to 1; a pair that is rare or in every text says nothing."""
    if count < TOGETHER or count == total:
        return -1.0
    return log(count * total / (first * second)) / -log(count / total)
