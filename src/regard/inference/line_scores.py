"""The log-probability of each line of a text: of a causal model; of a masked one its pseudo-log-likelihood.

A causal model predicts each token from what stands before it in its line, in windows that overlap where the line is
longer than the model reads. A masked model sees both sides: each token is masked in turn. The two do not compare.
Knows lines and how to read them; the arithmetic is in `causal` and `regard.inference.surprise`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from torch import nn

from regard.checkpoints.ready import MaskedLM, evaluation_mode
from regard.data.files import display_name, open_text
from regard.errors import InputError
from regard.inference.causal_lm import CausalScorer, ScoredIds
from regard.inference.surprise import masked_nll, windows
from regard.models import Bert
from regard.text import Tokenizer

__all__ = ["LineScore", "read_lines_to_score", "score_lines"]

AT_ONCE = 256  # lines that are read before any is scored: enough to find company of the same length


@dataclass(frozen=True)
class LineScore:
    """`log_probability` is the sum over the `tokens` scored, in nats; `mean` is that for one token, None without any.

    `unscored` tokens had nothing to be predicted from: the first one, where the model has no begin token. `long` says
    that the line has more tokens than the model reads at once, so that it was scored in windows.
    """

    line: int
    log_probability: float
    tokens: int
    mean: float | None
    unscored: int
    long: bool


class _Found(NamedTuple):
    log_probability: float
    tokens: int
    unscored: int
    long: bool


def read_lines_to_score(path: str | os.PathLike[str]) -> Iterator[str]:
    """The lines of a file or of standard input, one at a time; InputError at the end of one without any text."""
    empty = True
    with open_text(path) as lines:
        for line in lines:
            empty = empty and not line.strip()
            yield line
    if empty:
        raise InputError(f"{display_name(path)} is empty; expected a text on each line")


def score_lines(
    model: nn.Module, tokenizer: Tokenizer | None, lines: Iterable[str], *, at_once: int = AT_ONCE
) -> Iterator[LineScore]:
    """Score each line by itself, in order; memory does not grow with their number. That a line ends is not scored."""
    score: Callable[[Sequence[str]], list[_Found]]
    if isinstance(model, Bert):
        score = partial(_pseudo, MaskedLM.of(model, tokenizer, doing="pseudo-log-likelihood"))
    else:
        score = partial(_forwards, CausalScorer.of(model, tokenizer, doing="scoring"))
    number, source = 0, iter(lines)
    while block := list(islice(source, at_once)):
        with evaluation_mode(model):
            found = score(block)
        for log_probability, tokens, unscored, long in found:
            number += 1
            mean = log_probability / tokens if tokens else None
            yield LineScore(number, log_probability, tokens, mean, unscored, long)


def _forwards(asked: CausalScorer, lines: Sequence[str]) -> list[_Found]:
    """Windows of all lines are read together."""
    rows: list[ScoredIds] = []
    owners: list[int] = []
    counts: list[tuple[int, int]] = []
    for number, body in enumerate(asked.tokenizer.ids_batch(lines, special=False)[0]):
        ids = [*asked.opening, *body]
        count = max(0, len(ids) - 1)
        counts.append((count, len(body) - count))
        for window in windows(count, asked.positions, max(1, asked.positions // 2)):
            rows.append(ScoredIds(ids[window.start : window.end + 1], window.scored - window.start + 1))
            owners.append(number)
    sums = [0.0] * len(lines)
    for owner, scored in zip(owners, asked.score(rows), strict=True):
        sums[owner] += scored.log_probability
    return [
        _Found(total, count, unscored, count > asked.positions)
        for total, (count, unscored) in zip(sums, counts, strict=True)
    ]


def _pseudo(asked: MaskedLM, lines: Sequence[str]) -> list[_Found]:
    return [_masked_one_by_one(asked, line) for line in lines]


def _masked_one_by_one(asked: MaskedLM, line: str) -> _Found:
    """Each token in the middle of a window of its own."""
    encoding = asked.tokenizer.encode(line)
    inner = [place for place, special in enumerate(encoding.special) if not special]
    if not inner:
        return _Found(0.0, 0, 0, False)
    first, end = inner[0], inner[-1] + 1
    body, room = encoding.ids[first:end], asked.limit - (len(encoding) - (end - first))
    nll = masked_nll(
        asked,
        body,
        around=(encoding.ids[:first], encoding.ids[end:]),
        places=range(len(body)),
        length=min(len(body), room),
        tell=lambda done, total: None,
    )
    return _Found(-nll, len(body), 0, len(body) > room)
