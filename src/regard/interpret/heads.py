"""The head census: which known pattern each attention head follows over many texts, tested against chance.

A score is the share of a token's attention that falls on the targets of a pattern, averaged over the tokens that have
targets. Chance is the same map with permuted key tokens (for "broad": weights drawn at random).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard.checkpoints.loaded_model import require_tokenizer
from regard.errors import InputError
from regard.events import Progress
from regard.interpret.attention.recording import record_attention
from regard.models.family import can, describe_model, family_name
from regard.render.result import Result, Table
from regard.text import Encoding, Tokenizer
from regard.wording import count_of

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

NEIGHBORS = 10  # a related token is among this many nearest neighbors in the vocabulary
MIN_COSINE = 0.4  # and the cosine of their centered embeddings is at least this
MIN_SHARED = 3  # predictive words share at least this many texts
MIN_NPMI = 0.5  # and their normalized pointwise mutual information is at least this
Bools = NDArray[np.bool_]


def targets(
    text: Encoding, related: frozenset[tuple[int, int]], predictive: frozenset[tuple[int, int]], *, causal: bool
) -> Bools:
    """Whether each token points at each other one, for every pattern in POINTING: (patterns, T, T).

    Special tokens point at nothing and only "delimiter" points at them; in a causal model nothing points ahead.
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
        encoding: Encoding,
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
        for pattern, one in enumerate(targets):
            on_targets = (weights * one).reshape(heads, -1)
            for head, index in enumerate(on_targets.argmax(1).tolist()):
                if on_targets[head, index] > 0:
                    row, column = divmod(index, length)
                    self._add_example(head, pattern, float(on_targets[head, index]), text, row, column, weights)
        visible = np.arange(1, length + 1) if causal else np.full(length, length)
        rows = np.flatnonzero(~np.array(encoding.special_tokens_mask) & (visible >= MIN_VISIBLE))
        if not len(rows):
            return
        values = evenness(weights[:, rows], visible[rows])
        self.totals[:, -1] += values.sum(1)
        self.tokens[-1] += len(rows)
        self.draws[:, :, -1] += random_evenness(visible[rows], SHUFFLES, random)[:, None]
        for head, row in enumerate(rows[values.argmax(1)].tolist()):
            column = int(weights[head, row].argmax())
            self._add_example(head, len(PATTERNS) - 1, float(values[head].max()), text, row, column, weights)

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


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of p-values: it controls the probability of any false finding among them."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


MAX_TOKENS = 128  # of a text; the rest is truncated
LEVEL = 0.05  # a corrected p-value below this is significant
MIN_EXCESS = 0.1  # a pattern names a head if its score exceeds chance by so much as well
MAX_EXAMPLES = 5  # of a head


@dataclass(frozen=True)
class PatternScore:
    """One pattern of one head. `score` and `chance` are from 0 to 1; None if no token of the texts has a target.

    `p` is the probability of such a score by chance, `corrected` after Holm's correction for all heads and patterns.
    """

    pattern: str
    tokens: int
    score: float | None
    chance: float | None
    p: float | None
    corrected: float | None

    @property
    def excess(self) -> float:
        return 0.0 if self.score is None or self.chance is None else self.score - self.chance

    @property
    def is_significant(self) -> bool:
        return self.corrected is not None and self.corrected < LEVEL and self.excess >= MIN_EXCESS


@dataclass(frozen=True)
class HeadExample:
    """Token `row` of a text attends to token `column` with `weights[column]`; `weights` is the whole row."""

    text: int
    row: int
    column: int
    weights: list[float]


@dataclass(frozen=True)
class HeadPatterns:
    """`pattern` names the head, or is None. The examples are of it, or of the nearest pattern."""

    layer: int
    head: int
    pattern: str | None
    nearest: str
    findings: list[PatternScore]
    examples: list[HeadExample]


class HeadCensus(Result):
    """Heads by layer, from 1, then by number, from 0. `texts` are the tokens of those texts that have examples.

    `left_out` lines were not read; `truncated` of the texts had more tokens than were read. `excess` is by how much the
    score of a pattern must exceed chance to name a head.
    """

    page_view: ClassVar[str | None] = "heads"

    model: str
    family: str
    layers: int
    heads_each: int
    read: int
    left_out: int
    truncated: int
    notes: list[str]
    correction: str = "Holm"
    level: float = LEVEL
    excess: float = MIN_EXCESS
    about: dict[str, str] = ABOUT
    counts: dict[str, int]
    heads: list[HeadPatterns]
    texts: dict[int, list[str]]

    def to_table(self) -> Table:
        """One row for each head, with its pattern or the nearest one."""
        return ["layer", "head", "pattern", "nearest", "score", "chance", "corrected_p"], [
            [one.layer, one.head, one.pattern, one.nearest, nearest.score, nearest.chance, nearest.corrected]
            for one in self.heads
            for nearest in one.findings
            if nearest.pattern == one.nearest
        ]

    def to_text(self) -> str:
        unnamed = sum(head.pattern is None for head in self.heads)
        lines = [
            f"{len(self.heads)} heads of {self.model} over {count_of(self.read, 'text')}",
            "",
            *(f"  {name:42}  {count:4}" for name, count in self.counts.items()),
            f"  {'none of these':42}  {unnamed:4}",
            "",
            f"  {'layer':>5}  {'head':>4}  {'pattern':42}  {'score':>6}  {'chance':>6}  corrected p",
        ]
        for layer, head, pattern, nearest, score, chance, corrected in self.to_table()[1]:
            name = str(pattern or f"none; nearest: {nearest}")[:42]
            numbers = "" if corrected is None else f"  {score:6.3f}  {chance:6.3f}  {corrected:.2g}"
            lines.append(f"  {layer:5}  {head:4}  {name:42}{numbers}")
        return "\n".join(lines)


def read_text_pairs(lines: Iterable[str], *, limit: int = 100) -> tuple[list[tuple[str, str | None]], int]:
    """The first `limit` texts, and the number of lines with text that are left out.

    A line with a tab is a pair, and so are two consecutive lines without one.
    """
    pairs: list[tuple[str, str | None]] = []
    left_out = 0
    waiting: str | None = None
    for line in lines:
        first, _, second = line.partition("\t")
        first, second = first.strip(), second.strip()
        if len(pairs) == limit:
            left_out += bool(first or second)
        elif first and second:
            pairs.append((first, second))
        elif text := first or second:
            pairs += [] if waiting is None else [(waiting, text)]
            waiting = text if waiting is None else None
    if waiting is not None:
        if len(pairs) < limit:
            pairs.append((waiting, None))
        else:
            left_out += 1
    if not pairs:
        raise InputError("there is no text; expected one per line, or pairs with a tab between them")
    return pairs, left_out


def head_census(
    model: nn.Module,
    tokenizer: Tokenizer | None,
    texts: Sequence[tuple[str, str | None]],
    *,
    left_out: int = 0,
    name: str = "",
    seed: int = 0,
) -> Generator[Progress, None, HeadCensus]:
    """Score every head for every pattern over the texts. A GPT, which reads no pairs, reads each text by itself.

    `left_out` lines were not read.
    """
    if not (can(model, "text-encoder") or can(model, "causal-lm")):
        raise InputError(f"a census needs a BERT or a GPT, and this is {describe_model(model)} model")
    tokenizer = require_tokenizer(model, tokenizer)
    causal = can(model, "causal-lm")
    if not texts:
        raise InputError("expected at least one text")
    inputs = [(text, None) for pair in texts for text in pair if text] if causal else list(texts)
    max_tokens = min(MAX_TOKENS, model.config.max_position_embeddings)
    encodings = [tokenizer.encode(a, b, max_length=max_tokens) for a, b in inputs]
    vectors: NDArray[np.float32] = model.embedding.tokens.weight.detach().float().cpu().numpy()
    related = related_pairs({token for encoding in encodings for token in encoding.ids}, vectors)
    predictive = predictive_pairs(encodings)
    random = np.random.default_rng(seed)
    sums = PatternSums(model.config.num_hidden_layers * model.config.num_attention_heads, max_examples=MAX_EXAMPLES)
    tokens: list[tuple[str, ...]] = []
    yield Progress(stage="reading", done=0, total=len(inputs))
    for index, ((a, b), encoding) in enumerate(zip(inputs, encodings, strict=True)):
        maps = record_attention(model, tokenizer, a, b, max_tokens=MAX_TOKENS).map()
        weights = maps.weights.reshape(-1, len(encoding), len(encoding))
        tokens.append(maps.rows.tokens)
        text = replace(encoding, segments=list(maps.rows.segments))
        sums.add(index, text, weights, targets(text, related, predictive, causal=causal), random, causal=causal)
        yield Progress(stage="reading", done=index + 1, total=len(inputs))
    heads = _heads(sums, model.config.num_attention_heads)
    with_examples = sorted({example.text for head in heads for example in head.examples})
    truncated = sum(encoding.num_truncated > 0 for encoding in encodings)
    notes = []
    if left_out:
        notes.append(f"left out: {count_of(left_out, 'line')}; regard heads --limit N reads more pairs")
    if truncated:
        notes.append(f"{truncated:,} of {len(inputs):,} texts were truncated to {max_tokens} tokens")
    return HeadCensus(
        model=name,
        family=family_name(model),
        layers=model.config.num_hidden_layers,
        heads_each=model.config.num_attention_heads,
        read=len(inputs),
        left_out=left_out,
        truncated=truncated,
        notes=notes,
        counts={pattern: sum(head.pattern == pattern for head in heads) for pattern in PATTERNS},
        heads=heads,
        texts={index: list(tokens[index]) for index in with_examples},
    )


def _heads(sums: PatternSums, heads_each: int) -> list[HeadPatterns]:
    measured = [pattern for pattern, count in enumerate(sums.tokens.tolist()) if count]
    heads = range(len(sums.totals))
    p_values = [p_value(sums.totals[head, one], sums.draws[:, head, one]) for head in heads for one in measured]
    both = iter(zip(p_values, holm(p_values), strict=True))
    result = []
    for index in heads:
        scores = [
            _score(sums, index, pattern, next(both) if pattern in measured else None)
            for pattern in range(len(PATTERNS))
        ]
        nearest = max(scores, key=lambda score: (score.is_significant, score.excess))
        examples = [
            HeadExample(text, row, column, [round(float(weight), 4) for weight in weights])
            for _, text, row, column, weights in sums.best[index][PATTERNS.index(nearest.pattern)]
        ]
        layer, head = divmod(index, heads_each)
        name = nearest.pattern if nearest.is_significant else None
        result.append(HeadPatterns(layer + 1, head, name, nearest.pattern, scores, examples))
    return result


def _score(sums: PatternSums, head: int, pattern: int, p_values: tuple[float, float] | None) -> PatternScore:
    tokens = int(sums.tokens[pattern])
    if p_values is None:
        return PatternScore(PATTERNS[pattern], 0, None, None, None, None)
    score, chance = sums.totals[head, pattern] / tokens, sums.draws[:, head, pattern].mean() / tokens
    return PatternScore(PATTERNS[pattern], tokens, float(score), float(chance), *p_values)
