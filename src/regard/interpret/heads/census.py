"""The head census: which known pattern each attention head follows over many texts, tested against chance.

A score is the share of a token's attention that falls on the targets of a pattern, averaged over the tokens that have
targets. Chance is the same map with permuted key tokens (for "broad": weights drawn at random).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard.checkpoints.loaded_model import require_tokenizer
from regard.errors import InputError
from regard.events import Progress
from regard.interpret.attention.recording import record_attention
from regard.interpret.attention.token_axis import axis_of_encoding
from regard.interpret.heads.patterns import ABOUT, PATTERNS, TokenizedText, predictive_pairs, related_pairs, targets
from regard.interpret.heads.scores import PatternSums, holm, p_value
from regard.models.family import can, describe_model, family_name
from regard.render.result import Result, Table
from regard.text import Encoding, Tokenizer
from regard.wording import count_of

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
    """Heads by layer, then by number, both from 0. `texts` are the tokens of those texts that have examples.

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


class TextPairs(list[tuple[str, str | None]]):
    """Texts and pairs in their order; `left_out` counts the lines with text that were not read."""

    left_out = 0


def read_text_pairs(lines: Iterable[str], *, limit: int = 100) -> TextPairs:
    """The first `limit` texts: a line with a tab is a pair, and so are two consecutive lines without one.

    The remaining lines are only counted.
    """
    pairs = TextPairs()
    waiting: str | None = None
    for line in lines:
        first, _, second = line.partition("\t")
        first, second = first.strip(), second.strip()
        if len(pairs) == limit:
            pairs.left_out += bool(first or second)
        elif first and second:
            pairs.append((first, second))
        elif text := first or second:
            pairs += [] if waiting is None else [(waiting, text)]
            waiting = text if waiting is None else None
    if waiting is not None:
        if len(pairs) < limit:
            pairs.append((waiting, None))
        else:
            pairs.left_out += 1
    if not pairs:
        raise InputError("there is no text; expected one per line, or pairs with a tab between them")
    return pairs


def head_census(
    model: nn.Module,
    tokenizer: Tokenizer | None,
    texts: Sequence[tuple[str, str | None]],
    *,
    name: str = "",
    seed: int = 0,
) -> Generator[Progress, None, HeadCensus]:
    """Score every head for every pattern over the texts. A GPT, which reads no pairs, reads each text by itself."""
    if not (can(model, "text-encoder") or can(model, "causal-lm")):
        raise InputError(f"a census needs a BERT or a GPT, and this is {describe_model(model)} model")
    tokenizer = require_tokenizer(model, tokenizer)
    causal = can(model, "causal-lm")
    if not texts:
        raise InputError("expected at least one text")
    inputs = [(text, None) for pair in texts for text in pair if text] if causal else list(texts)
    max_tokens = min(MAX_TOKENS, model.config.max_position_embeddings)
    encodings = [tokenizer.encode(a, b, max_length=max_tokens) for a, b in inputs]
    tokenized = [_tokenized(tokenizer, encoding) for encoding in encodings]
    vectors: NDArray[np.float32] = model.embedding.tokens.weight.detach().float().cpu().numpy()
    related = related_pairs({token for text in tokenized for token in text.ids}, vectors)
    predictive = predictive_pairs(tokenized)
    random = np.random.default_rng(seed)
    sums = PatternSums(model.config.num_hidden_layers * model.config.num_attention_heads, max_examples=MAX_EXAMPLES)
    for index, ((a, b), text) in enumerate(zip(inputs, tokenized, strict=True)):
        maps = record_attention(model, tokenizer, a, b, max_tokens=MAX_TOKENS).map()
        weights = maps.weights.reshape(-1, len(text.ids), len(text.ids))
        sums.add(index, text, weights, targets(text, related, predictive, causal=causal), random, causal=causal)
        yield Progress(stage="reading", done=index + 1, total=len(inputs))
    heads = _heads(sums, model.config.num_attention_heads)
    with_examples = sorted({example.text for head in heads for example in head.examples})
    left_out = texts.left_out if isinstance(texts, TextPairs) else 0
    truncated = sum(encoding.cut > 0 for encoding in encodings)
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
        texts={index: list(tokenized[index].tokens) for index in with_examples},
    )


def _tokenized(tokenizer: Tokenizer, encoding: Encoding) -> TokenizedText:
    axis = axis_of_encoding(tokenizer, encoding)
    return TokenizedText(axis.tokens, tuple(encoding.ids), axis.segments, tuple(encoding.special))


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
        result.append(HeadPatterns(layer, head, name, nearest.pattern, scores, examples))
    return result


def _score(sums: PatternSums, head: int, pattern: int, p_values: tuple[float, float] | None) -> PatternScore:
    tokens = int(sums.tokens[pattern])
    if p_values is None:
        return PatternScore(PATTERNS[pattern], 0, None, None, None, None)
    score, chance = sums.totals[head, pattern] / tokens, sums.draws[:, head, pattern].mean() / tokens
    return PatternScore(PATTERNS[pattern], tokens, float(score), float(chance), *p_values)
