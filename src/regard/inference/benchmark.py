"""Benchmarks by likelihood: the most likely ending is the model's answer. Reads no files."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from torch import nn

from regard.data.batch import in_groups
from regard.errors import InputError, check_choice
from regard.events import Progress, drain
from regard.inference.benchmark_data import TASKS, BenchmarkItem, published
from regard.inference.causal_lm import CausalScorer, ScoredIds, SequenceScore
from regard.nn.training import evaluation_mode
from regard.render.result import Result
from regard.tasks.metrics import mean_interval
from regard.text import Tokenizer
from regard.wording import count_of

AT_ONCE = 64  # items whose endings are batched together


class BenchmarkResult(Result):
    """Scores in percent; None where a task has no such score.

    `accuracy`: the right ending has the highest log-probability; for LAMBADA, every token of the last word is the
    model's first choice given the right tokens before it. `accuracy_normalised`: the same for log-probabilities divided
    by the bytes of the ending. `perplexity`: exp of the mean negative log-likelihood of LAMBADA's last words, per word.
    `interval`: 95% confidence interval of the accuracy. `chance`: the accuracy of guessing. `cut`: examples too long
    for the model, whose context was truncated on the left.
    """

    model: str = ""
    task: str
    n: int
    accuracy: float
    accuracy_normalised: float | None
    perplexity: float | None
    chance: float | None
    interval: tuple[float, float]
    cut: int

    def to_text(self) -> str:
        low, high = self.interval
        lines = [
            f"{self.task}: {count_of(self.n, 'example')}, {self.model}",
            f"{'accuracy':<20} {self.accuracy:6.2f} % (95%: {low:.2f} to {high:.2f})",
        ]
        if self.accuracy_normalised is not None:
            lines.append(f"{'normalised by bytes':<20} {self.accuracy_normalised:6.2f} %")
        if self.chance is not None:
            lines.append(f"{'chance':<20} {self.chance:6.2f} %")
        if self.perplexity is not None:
            lines.append(f"{'perplexity of a word':<20} {self.perplexity:,.4g}")
        unit = "percent" if self.perplexity is None else "perplexity"
        lines += ["", f"In the lectures' table ({unit}):"]
        return "\n".join([*lines, *(f"  {name:<18} {figure:g}" for name, figure in published(self.task).items())])


@dataclass
class _Tally:
    """Scores of the items so far."""

    right: list[float] = field(default_factory=list)
    right_normalised: list[float] = field(default_factory=list)
    nll: float = 0.0
    chance: float = 0.0
    cut: int = 0

    def add(self, item: BenchmarkItem, scores: Sequence[SequenceScore], *, cut: bool) -> None:
        values = [score.log_probability for score in scores]
        normalised = [value / ending.bytes for value, ending in zip(values, item.candidates, strict=True)]
        right = scores[0].greedy if len(values) == 1 else values.index(max(values)) == item.label
        self.right.append(100.0 * right)
        self.right_normalised.append(100.0 * (normalised.index(max(normalised)) == item.label))
        self.nll -= values[item.label]
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
    """`benchmark_events` run to its end; `on_progress` is called with the number of scored examples."""
    return drain(benchmark_events(model, tokenizer, task, items), lambda event: on_progress(event.done))


def benchmark_events(
    model: nn.Module, tokenizer: Tokenizer | None, task: str, items: Sequence[BenchmarkItem], *, name: str = ""
) -> Generator[Progress, None, BenchmarkResult]:
    """Score every ending of every item.

    Each context begins with the begin token, if the model has one. A context that is too long for the model is
    truncated on the left; an ending that is too long by itself is scored in windows, after one token of its context.
    """
    check_choice("benchmark", task, TASKS)
    if not items:
        raise InputError("a benchmark needs at least one example, got none")
    scorer, tally = CausalScorer.of(model, tokenizer, doing="a benchmark"), _Tally()
    for group in in_groups(items, AT_ONCE):
        with evaluation_mode(model):
            _score(scorer, group, tally)
        yield Progress(stage="scoring", done=len(tally.right), total=len(items), unit="examples")
    settings, n = TASKS[task], len(items)
    return BenchmarkResult(
        model=name,
        task=task,
        n=n,
        accuracy=sum(tally.right) / n,
        accuracy_normalised=sum(tally.right_normalised) / n if settings.normalised else None,
        perplexity=_exp(tally.nll / n) if settings.word else None,
        chance=None if settings.word else tally.chance / n,
        interval=mean_interval(tally.right),
        cut=tally.cut,
    )


def _score(scorer: CausalScorer, items: Sequence[BenchmarkItem], tally: _Tally) -> None:
    endings = [(item.where, ending) for item in items for ending in item.candidates]
    contexts, _ = scorer.tokenizer.ids_batch([ending.context for _, ending in endings], add_special_tokens=False)
    targets, _ = scorer.tokenizer.ids_batch([ending.ending for _, ending in endings], add_special_tokens=False)
    rows = [
        _rows(scorer, context, target, where)
        for context, target, (where, _) in zip(contexts, targets, endings, strict=True)
    ]
    scores = iter(scorer.score([row for parts, _ in rows for row in parts]))
    whole = [_sum([next(scores) for _ in parts]) for parts, _ in rows]
    start = 0
    for item in items:
        end = start + len(item.candidates)
        tally.add(item, whole[start:end], cut=any(cut for _, cut in rows[start:end]))
        start = end


def _rows(scorer: CausalScorer, context: list[int], ending: list[int], where: str) -> tuple[list[ScoredIds], bool]:
    """Context and ending as rows the model can read, and whether they were too long for one.

    An ending that is too long by itself becomes rows that overlap by half.
    """
    if not ending:
        raise InputError(f"{where}: an ending has no tokens in this model's vocabulary; mend or remove the example")
    ids, most = [*scorer.opening, *context, *ending], scorer.max_length
    if len(ids) == len(ending):
        raise InputError(f"{where}: there is no context, and this model has no begin token to predict the ending from")
    if len(ending) > most:
        return scorer.window_rows(ids[-(len(ending) + 1) :]), True
    read = ids[-(most + 1) :]  # the last id is predicted and not read
    return [ScoredIds(read, len(read) - len(ending))], len(read) < len(ids)


def _sum(scores: Sequence[SequenceScore]) -> SequenceScore:
    return SequenceScore(sum(score.log_probability for score in scores), all(score.greedy for score in scores))


def _exp(mean: float) -> float:
    return math.inf if mean > 700 else math.exp(mean)  # exp(710) is not a float any more
