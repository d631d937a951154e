"""The head census: which known pattern each attention head follows over many texts, tested against chance.

A score is the share of a token's attention that falls on the targets of a pattern, averaged over the tokens that have
targets. Chance is the same map with permuted key tokens (for "broad": weights drawn at random). "Induction", which only
causal models can have, is scored on random tokens that are read twice, all other patterns on the texts.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.checkpoints.loaded_model import require_tokenizer
from regard.errors import InputError
from regard.events import Progress
from regard.inference.causal_lm import begin_token
from regard.interpret.attention.maps import display_token
from regard.interpret.attention.recording import record_attention
from regard.interpret.head_patterns import (
    ABOUT,
    INDUCTION,
    MIN_VISIBLE,
    PATTERNS,
    PatternSums,
    holm,
    induction_targets,
    p_value,
    predictive_pairs,
    related_pairs,
    targets,
)
from regard.models.family import can, describe_model, family_name
from regard.nn.masks import Padded
from regard.nn.recording import record
from regard.nn.training import evaluation_mode
from regard.render.result import Result, Table
from regard.text import Tokenizer
from regard.wording import count_of

MAX_TOKENS = 128  # of a text; the rest is truncated
SEQUENCES = 10  # of random tokens that are read twice, for induction
REPEATED_TOKENS = 25  # of such a sequence
LEVEL = 0.05  # a corrected p-value below this is significant
MIN_EXCESS = 0.1  # a pattern names a head if its score exceeds chance by so much as well
MAX_EXAMPLES = 5  # of a head
LISTED_INDUCTION = 5  # heads that the text lists with their induction scores


@dataclass(frozen=True)
class PatternScore:
    """One pattern of one head. `score` and `chance` are from 0 to 1; None if no token of the texts has a target.

    `interval` is the 95% confidence interval of the score over the texts, None for fewer than three texts. `p` is the
    probability of such a score by chance, `corrected` after Holm's correction for all heads and patterns.
    """

    pattern: str
    tokens: int
    score: float | None
    interval: tuple[float, float] | None
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

    def finding(self, pattern: str) -> PatternScore:
        return next(one for one in self.findings if one.pattern == pattern)


class HeadCensus(Result):
    """Heads by layer, from 1, then by number, from 0. `texts` are the tokens of those texts that have examples; those
    from number `read` on are the random tokens for induction.

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
        headers = ["layer", "head", "pattern", "nearest", "score", "chance", "corrected_p", "induction"]
        return headers, [
            [one.layer, one.head, one.pattern, one.nearest, nearest.score, nearest.chance, nearest.corrected,
             one.finding(INDUCTION).score]
            for one in self.heads
            for nearest in [one.finding(one.nearest)]
        ]  # fmt: skip

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
        for layer, head, pattern, nearest, score, chance, corrected, _ in self.to_table()[1]:
            name = str(pattern or f"none; nearest: {nearest}")[:42]
            numbers = "" if corrected is None else f"  {score:6.3f}  {chance:6.3f}  {corrected:.2g}"
            lines.append(f"  {layer:5}  {head:4}  {name:42}{numbers}")
        return "\n".join([*lines, *self._induction_lines()])

    def _induction_lines(self) -> list[str]:
        """The heads with the highest induction scores, if the model is causal."""
        found = [(one.finding(INDUCTION), one) for one in self.heads]
        found = sorted((pair for pair in found if pair[0].score is not None), key=lambda pair: -(pair[0].score or 0))
        lines = []
        for finding, one in found[:LISTED_INDUCTION]:
            low, high = finding.interval or (math.nan, math.nan)
            numbers = f"{finding.score:6.3f}  {low:.3f} to {high:.3f}  {finding.chance:6.3f}"
            lines.append(f"  {one.layer:5}  {one.head:4}  {numbers}")
        heading = f"  {'layer':>5}  {'head':>4}  {'score':>6}  {'95% interval':14}  {'chance':>6}"
        title = f"highest induction scores, over {SEQUENCES} sequences of random tokens that are read twice"
        return ["", title, "", heading, *lines] if lines else []


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
    if causal:
        tokens += _add_induction(sums, model, tokenizer, np.random.default_rng([seed, 1]), first=len(inputs))
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


def _add_induction(
    sums: PatternSums, model: Any, tokenizer: Tokenizer, random: np.random.Generator, *, first: int
) -> list[tuple[str, ...]]:
    """Add sequences of random tokens, each read twice, after the token that begins a text; returns their tokens.

    `first` is the number of the first sequence among the texts. Nothing is added if the model has too few positions or
    the vocabulary too few tokens to repeat.
    """
    begin = begin_token(model, tokenizer)
    opening = [] if begin is None else [begin]
    size = min(tokenizer.size, model.config.vocab_size)
    special = set(tokenizer.special_token_ids)
    candidates = np.array([token for token in range(size) if token not in special])
    length = min(REPEATED_TOKENS, (model.config.max_position_embeddings - len(opening)) // 2, len(candidates))
    if length < MIN_VISIBLE:
        return []
    texts = []
    for number in range(first, first + SEQUENCES):
        once = random.choice(candidates, length, replace=False)
        ids = np.concatenate([np.array(opening, dtype=np.int64), once, once])
        with evaluation_mode(model), record(model) as tape:
            model(torch.from_numpy(ids)[None].to(model.embedding.tokens.weight.device), Padded())
        weights = torch.cat([one[0] for one in tape.attention()]).float().cpu().numpy()
        targets = induction_targets(ids)
        targets[:, : len(opening)] = False
        sums.add_pointing(number, weights, targets, random, causal=True)
        texts.append(tuple(display_token(tokenizer, token) for token in ids.tolist()))
    return texts


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
        nearest = max(scores, key=lambda score: (score.tokens > 0, score.is_significant, score.excess))
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
        return PatternScore(PATTERNS[pattern], 0, None, None, None, None, None)
    score, chance = sums.totals[head, pattern] / tokens, sums.draws[:, head, pattern].mean() / tokens
    interval = sums.interval(head, pattern)
    return PatternScore(PATTERNS[pattern], tokens, float(score), interval, float(chance), *p_values)
