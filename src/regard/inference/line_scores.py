"""Log-probability of each line of a text; for a masked model its pseudo-log-likelihood.

Lines longer than the model reads are scored in overlapping windows. Scores of the two kinds are not comparable.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Literal

from torch import nn

from regard.data.batch import in_groups
from regard.data.files import display_name, open_text
from regard.errors import InputError
from regard.events import Progress, TextPiece
from regard.inference.causal_lm import CausalScorer, ScoredIds
from regard.inference.masked_lm import MaskedLM, pseudo_nll
from regard.inference.windows import split_special_tokens
from regard.models.family import can
from regard.nn.training import evaluation_mode
from regard.render.result import Result, Table
from regard.text import Tokenizer
from regard.wording import count_of

AT_ONCE = 256  # lines read before any is scored: enough to batch lines of similar length


@dataclass(frozen=True)
class LineScore:
    """`log_probability` is the sum over the `tokens` scored, in nats; `mean` is the mean per token, None without any.

    `unscored` is 1 if the first token had nothing to be predicted from: the model has no begin token. `long` lines have
    more tokens than the model reads at once and were scored in windows.
    """

    line: int
    log_probability: float
    tokens: int
    mean: float | None
    unscored: int
    long: bool

    def to_text(self, text: str) -> str:
        mean = "-" if self.mean is None else f"{self.mean:.4f}"
        return f"{self.log_probability:.4f}\t{self.tokens}\t{mean}\t{text}\n"


class LineScores(Result):
    """The scores of all lines, and their sums."""

    model: str
    kind: Literal["log-probability", "pseudo-log-likelihood"]
    log_probability: float
    tokens: int
    lines: list[LineScore]

    def notes(self) -> list[str]:
        """What a reader of the numbers should know."""
        notes = []
        if self.kind != "log-probability":
            notes.append(
                f"{self.kind}: each token was masked in turn and predicted from both sides; "
                "not comparable with the scores of a GPT"
            )
        if long := sum(line.long for line in self.lines):
            notes.append(f"scored in windows, for more tokens than the model reads at once: {count_of(long, 'line')}")
        if unscored := sum(line.unscored for line in self.lines):
            notes.append(
                f"the first tokens of {count_of(unscored, 'line')} were not scored: this model has no begin token"
            )
        return notes

    def to_text(self) -> str:
        return f"{count_of(len(self.lines), 'line')}, {self.kind} {self.log_probability:.4f}, {self.tokens:,} tokens"

    def to_table(self) -> Table:
        names = ("line", "log_probability", "tokens", "mean")
        return names, [[getattr(line, name) for name in names] for line in self.lines]


def read_lines_to_score(path: str | os.PathLike[str]) -> Iterator[str]:
    """The lines of a file or of standard input, one at a time; InputError at the end of a file without text."""
    empty = True
    with open_text(path) as lines:
        for line in lines:
            empty = empty and not line.strip()
            yield line
    if empty:
        raise InputError(f"{display_name(path)} is empty; expected a text on each line")


def scoring_events(
    model: nn.Module, tokenizer: Tokenizer | None, lines: Iterable[str], *, name: str = ""
) -> Generator[Progress | TextPiece, None, LineScores]:
    """Score lines and yield a row of text for each: log-probability, tokens, mean and the line, separated by tabs."""
    pending: deque[str] = deque()

    def remember() -> Iterator[str]:
        for line in lines:
            pending.append(line)
            yield line

    scores: list[LineScore] = []
    for score in score_lines(model, tokenizer, remember()):
        scores.append(score)
        yield TextPiece(text=score.to_text(pending.popleft()))
        yield Progress(stage="scoring", done=len(scores), unit="lines")
    return LineScores(
        model=name,
        kind="pseudo-log-likelihood" if can(model, "text-encoder") else "log-probability",
        log_probability=sum(score.log_probability for score in scores),
        tokens=sum(score.tokens for score in scores),
        lines=scores,
    )


def score_lines(
    model: nn.Module, tokenizer: Tokenizer | None, lines: Iterable[str], *, at_once: int = AT_ONCE
) -> Iterator[LineScore]:
    """Score each line by itself, in order; memory does not grow with their number. The end of a line is not scored."""
    score: Callable[[Sequence[str]], list[Score]]
    if can(model, "text-encoder"):
        score = partial(_score_masked, MaskedLM.from_model(model, tokenizer, purpose="pseudo-log-likelihood"))
    else:
        score = partial(_score_causal, CausalScorer.of(model, tokenizer, doing="scoring"))
    number, source = 0, iter(lines)
    while block := list(islice(source, at_once)):
        with evaluation_mode(model):
            scores = score(block)
        for log_probability, tokens, unscored, long in scores:
            number += 1
            mean = log_probability / tokens if tokens else None
            yield LineScore(number, log_probability, tokens, mean, unscored, long)


Score = tuple[float, int, int, bool]  # log-probability, scored tokens, unscored tokens, long


def _score_causal(scorer: CausalScorer, lines: Sequence[str]) -> list[Score]:
    """The windows of all lines are batched together."""
    rows: list[ScoredIds] = []
    owners: list[int] = []
    counts: list[tuple[int, int]] = []
    for index, body in enumerate(scorer.tokenizer.ids_batch(lines, add_special_tokens=False)[0]):
        ids = [*scorer.opening, *body]
        count = max(0, len(ids) - 1)
        counts.append((count, len(body) - count))
        windows = scorer.window_rows(ids) if count else []
        rows += windows
        owners += [index] * len(windows)
    sums = [0.0] * len(lines)
    for owner, score in zip(owners, scorer.score(rows, greedy=False), strict=True):
        sums[owner] += score.log_probability
    return [
        (total, count, unscored, count > scorer.max_length)
        for total, (count, unscored) in zip(sums, counts, strict=True)
    ]


def _score_masked(masked_lm: MaskedLM, lines: Sequence[str]) -> list[Score]:
    """Each token is masked in the middle of its own window."""
    return [_score_masked_line(masked_lm, line) for line in lines]


def _score_masked_line(masked_lm: MaskedLM, line: str) -> Score:
    before, body, after = parts = split_special_tokens(masked_lm.tokenizer.encode(line))
    if not body:
        return 0.0, 0, 0, False
    special = len(before) + len(after)
    nll = 0.0
    for group in in_groups(range(len(body)), masked_lm.batch_tokens // min(len(body) + special, masked_lm.max_length)):
        nll += pseudo_nll(masked_lm, parts, group, length=masked_lm.max_length)
    return -nll, len(body), 0, len(body) + special > masked_lm.max_length
