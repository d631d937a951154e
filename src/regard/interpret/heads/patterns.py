"""Known patterns of attention heads: for each token of a text, the tokens that a pattern points at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log

import numpy as np
from numpy.typing import NDArray

BROAD = "broad"
ABOUT = {
    "next word": "attends to the next token",
    "previous word": "attends to the previous token",
    "same or related word": "attends to the same token, or a related one, elsewhere in its sentence",
    "same or related word in the other sentence": "attends to the same token, or a related one, in the other sentence",
    "delimiter": "attends to [CLS] and [SEP], or the special tokens that take their place",
    "predictive words": "attends to words that occur in the same texts as its own more often than by chance",
    BROAD: "attends to all tokens, more evenly than by chance",
}
PATTERNS = tuple(ABOUT)
POINTING = PATTERNS[:-1]  # patterns with targets; a broad head has none

NEIGHBORS = 10  # a related token is among so many nearest neighbors in the vocabulary
MIN_COSINE = 0.4  # and the cosine of their centered embeddings is at least this
MIN_SHARED = 3  # predictive words share at least so many texts
MIN_NPMI = 0.5  # and their normalized pointwise mutual information is at least this

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class TokenizedText:
    """A text or a pair as tokens, each with its segment (0 or 1) and whether it is a special token."""

    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    segments: tuple[int, ...]
    special: tuple[bool, ...]


def targets(
    text: TokenizedText, related: frozenset[tuple[int, int]], predictive: frozenset[tuple[int, int]], *, causal: bool
) -> Bools:
    """Whether each token points at each other one, for every pattern in POINTING: (patterns, T, T).

    Special tokens point at nothing and only "delimiter" points at them; in a causal model nothing points ahead.
    """
    ids, segments = np.array(text.ids), np.array(text.segments)
    word = ~np.array(text.special)
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
        ]
    )
    return result & (distance <= 0) if causal else result


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


def predictive_pairs(tokenized: Sequence[TokenizedText]) -> frozenset[tuple[int, int]]:
    """Pairs of tokens that share texts more often than by chance, by normalized pointwise mutual information."""
    texts = [sorted({i for i, special in zip(one.ids, one.special, strict=True) if not special}) for one in tokenized]
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
    return log(count * total / (first * second)) / -log(count / total)
