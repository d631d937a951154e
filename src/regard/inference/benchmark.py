"""Benchmarks by likelihood: the most likely ending is the model's answer. Knows items and a GPT; reads no file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import nn

from regard.checkpoints.ready import evaluation_mode, in_groups
from regard.errors import InputError, check_choice
from regard.inference.benchmark_data import TASKS, BenchmarkItem
from regard.inference.causal_lm import CausalScorer, ScoredIds, SequenceScore
from regard.inference.surprise import windows
from regard.tasks.metrics.interval import mean_interval
from regard.text import Tokenizer

__all__ = ["BenchmarkResult", "run_benchmark"]

AT_ONCE = 64  # items whose candidates are sorted by length together


@dataclass(frozen=True)
class BenchmarkResult:
    """What a model got, in percent; None where a task has no such number.

    `accuracy`: the right ending has the highest log-probability; in LAMBADA, each token of the last word is the model's
    first choice behind the right ones before it. `accuracy_normalised`: the same by log-probability divided by the
    bytes of the ending. `perplexity`: exp of the mean surprise at the last word of LAMBADA's passages, all its tokens
    together: per word, not per token. `interval`: of the accuracy, 95%, with other examples of the same kind.
    `chance`: what guessing gets. `cut`: examples too long for the model, whose context lost its beginning at least.
    """

    task: str
    n: int
    accuracy: float
    accuracy_normalised: float | None
    perplexity: float | None
    chance: float | None
    interval: tuple[float, float]
    cut: int


@dataclass
class _Tally:
    """What is kept of the items done: a number or two of each."""

    right: list[float] = field(default_factory=list)
    right_normalised: list[float] = field(default_factory=list)
    surprise: float = 0.0
    chance: float = 0.0
    cut: int = 0

    def add(self, item: BenchmarkItem, scores: Sequence[SequenceScore], *, cut: bool) -> None:
        values = [score.log_probability for score in scores]
        shares = [value / c.bytes for value, c in zip(values, item.candidates, strict=True)]
        if len(values) == 1:
            self.right.append(100.0 * scores[0].greedy)
        else:
            self.right.append(100.0 * (values.index(max(values)) == item.label))
        self.right_normalised.append(100.0 * (shares.index(max(shares)) == item.label))
        self.surprise -= values[item.label]
        self.chance += 100 / len(values)
        self.cut += cut


def run_benchmark(
    model: nn.Module,
    tokenizer: Tokenizer | None,
    task: str,
    items: Sequence[BenchmarkItem],
    *,
    on_progress: Callable[[int], None] = lambda done: None,
) -> BenchmarkResult:
    """Score every candidate of every item; `on_progress` hears how many items were done since it heard last.

    The begin token, where the model has one, stands before each context. A context that is too long for the model is
    cut on the left; an ending that is too long by itself is scored in windows, behind one token of its context.
    """
    check_choice("benchmark", task, TASKS)
    if not items:
        raise InputError("a benchmark needs at least one example, got none")
    asked, tally = CausalScorer.of(model, tokenizer, doing="a benchmark"), _Tally()
    for group in in_groups(items, AT_ONCE):
        with evaluation_mode(model):
            _score(asked, group, tally)
        on_progress(len(group))
    kind, n = TASKS[task], len(items)
    return BenchmarkResult(
        task=task,
        n=n,
        accuracy=sum(tally.right) / n,
        accuracy_normalised=sum(tally.right_normalised) / n if kind.normalised else None,
        perplexity=_exp(tally.surprise / n) if kind.word else None,
        chance=None if kind.word else tally.chance / n,
        interval=mean_interval(tally.right),
        cut=tally.cut,
    )


def _score(asked: CausalScorer, items: Sequence[BenchmarkItem], tally: _Tally) -> None:
    pairs = [candidate for item in items for candidate in item.candidates]
    contexts, _ = asked.tokenizer.ids_batch([pair.context for pair in pairs], special=False)
    endings, _ = asked.tokenizer.ids_batch([pair.ending for pair in pairs], special=False)
    wheres = [item.where for item in items for _ in item.candidates]
    rows = [_rows(asked, *parts) for parts in zip(contexts, endings, wheres, strict=True)]
    scores = iter(asked.score([row for parts, _ in rows for row in parts]))
    whole = [_sum([next(scores) for _ in parts]) for parts, _ in rows]
    start = 0
    for item in items:
        end = start + len(item.candidates)
        tally.add(item, whole[start:end], cut=any(cut for _, cut in rows[start:end]))
        start = end


def _rows(asked: CausalScorer, context: list[int], ending: list[int], where: str) -> tuple[list[ScoredIds], bool]:
    """Context and ending as a row of ids that the model can read, and whether they were too long for that.

    An ending that is by itself too long comes in rows that overlap by half.
    """
    if not ending:
        raise InputError(f"{where}: an ending has no tokens in this model's vocabulary; mend or remove the example")
    ids, most = [*asked.opening, *context, *ending], asked.positions
    if len(ids) == len(ending):
        raise InputError(f"{where}: there is no context, and this model has no begin token to predict the ending from")
    if len(ending) <= most:
        kept = ids[-(most + 1) :]  # the last id is predicted and not read
        return [ScoredIds(kept, len(kept) - len(ending))], len(kept) < len(ids)
    tail = ids[-(len(ending) + 1) :]
    parts = windows(len(ending), most, max(1, most // 2))
    return [ScoredIds(tail[part.start : part.end + 1], part.scored - part.start + 1) for part in parts], True


def _sum(scores: Sequence[SequenceScore]) -> SequenceScore:
    return SequenceScore(sum(score.log_probability for score in scores), all(score.greedy for score in scores))


def _exp(mean: float) -> float:
    return math.inf if mean > 700 else math.exp(mean)  # a float ends at exp(709)
