"""Perplexity of a text and log-probabilities of its lines, for a masked model pseudo-perplexity and -likelihood.

A causal model reads overlapping windows; each token is scored once, given the tokens before it in its window. A masked
model sees both sides: each token is masked in turn, in the middle of its own window. The two are not comparable.
"""

from __future__ import annotations

import math
import os
import random
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Literal

from pydantic import Field, PrivateAttr
from torch import nn

from regard.data.batch import in_groups
from regard.data.files import display_name, read_all_lines
from regard.data.readers.tables import Missing
from regard.data.rows import Row, RowReader
from regard.errors import InputError
from regard.events import Event, Progress, ResultItem, TextPiece
from regard.inference.causal_lm import BATCH_TOKENS, CausalScorer, ScoredIds, split_special_tokens
from regard.inference.masked_lm import MaskedLM, pseudo_nll
from regard.models.family import can, describe_model
from regard.nn.training import evaluation_mode
from regard.render.result import Result, Table
from regard.text import Tokenizer
from regard.wording import count_of

AT_ONCE = 256  # lines read before any is scored: enough to batch lines of similar length
Score = tuple[float, int, int, bool]  # log-probability, scored tokens, unscored tokens, long


class Perplexity(Result):
    """`nll` is the sum over the `tokens` scored, in nats; `perplexity` is exp(nll / tokens).

    `bits_per_byte` covers all `text_tokens` and `bytes` of the text. Tokens that were not scored (outside a sample, or
    the first token if no token precedes a text, see `opening_ids`) count there with the mean of the scored ones.
    `unknown` tokens stand for words outside the vocabulary, which are easy to predict.
    """

    model: str = ""
    kind: Literal["perplexity", "pseudo-perplexity"]
    tokens: int
    bytes: int
    nll: float
    perplexity: float = Field(allow_inf_nan=True)
    bits_per_byte: float
    text_tokens: int
    unknown: int

    def notes(self) -> list[str]:
        """What a reader of the numbers should know."""
        notes = []
        if self.kind == "pseudo-perplexity":
            notes.append(
                "pseudo-perplexity: each token was masked in turn and predicted from both sides; "
                "not comparable with the perplexity of a GPT"
            )
            if self.tokens < self.text_tokens:
                notes.append(f"a sample: {self.tokens:,} of {self.text_tokens:,} tokens were scored")
        elif self.tokens < self.text_tokens:
            notes.append("the first token was not scored: the tokenizer puts no token before a text")
        if self.unknown:
            notes.append(
                f"{self.unknown:,} of {self.text_tokens:,} tokens stand for words outside the vocabulary: "
                "they are easy to predict and lower the perplexity"
            )
        return notes

    def to_text(self) -> str:
        rows = {
            self.kind: f"{self.perplexity:,.4g}",
            "bits per byte": f"{self.bits_per_byte:.4f}",
            "nll": f"{self.nll:,.2f} nats",
            "tokens scored": f"{self.tokens:,}",
            "bytes": f"{self.bytes:,}",
            "model": self.model,
        }
        return "\n".join(f"{name:<18} {value}" for name, value in rows.items())


def read_text_file(path: str | os.PathLike[str], encoding: str | None = None) -> str:
    """The text of a file or of standard input, compressed or not: its lines joined by line feeds."""
    text = "\n".join(read_all_lines(path, encoding))
    if not text.strip():
        raise InputError(f"{display_name(path)} is empty; expected a text to score")
    return text


def perplexity_events(
    model: nn.Module,
    tokenizer: Tokenizer | None,
    text: str,
    *,
    stride: int | None = None,
    max_length: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    name: str = "",
) -> Generator[Progress, None, Perplexity]:
    """Score every token of a text or, for a masked model, `sample` random tokens.

    `max_length` is the window size in tokens (default: the model's positions). `stride` is the distance between the
    windows of a causal model (default: half a window); from the second window on, a token is predicted from at least
    `max_length - stride + 1` tokens.
    """
    if can(model, "causal-lm"):
        if sample is not None:
            raise InputError("sample is for masked models; a causal model scores whole windows at once: leave it out")
        scorer = CausalScorer.of(model, tokenizer, doing="perplexity")
        return (yield from _causal(scorer, text, stride, max_length, name))
    if not can(model, "text-encoder"):
        raise InputError(
            f"perplexity needs a model that predicts words, and this is {describe_model(model)} model; "
            "use a GPT-2, or a BERT, DistilBERT or RoBERTa with its masked-LM head"
        )
    if stride is not None:
        raise InputError("stride is for causal models; a masked model reads one window per token: leave it out")
    masked_lm = MaskedLM.from_model(model, tokenizer, purpose="pseudo-perplexity")
    return (yield from _pseudo(masked_lm, text, max_length, sample, seed, name))


def _causal(
    scorer: CausalScorer, text: str, stride: int | None, max_length: int | None, name: str
) -> Generator[Progress, None, Perplexity]:
    length = _window_length(max_length, scorer.max_length)
    if stride is not None and not 1 <= stride <= length:
        raise InputError(f"stride is {stride}; expected 1 to {length}, the tokens of a window")
    body = scorer.tokenizer.encode(text, add_special_tokens=False).ids
    ids = [*scorer.opening, *body]
    total = len(ids) - 1
    if total < 1:
        raise InputError(
            f"the text has {len(body)} tokens, and the tokenizer puts none before it: nothing can be predicted"
        )
    nll, done = 0.0, 0
    yield Progress(stage="scoring", done=0, total=total, unit="tokens")
    rows = scorer.window_rows(ids, length=length, stride=stride)
    for group in in_groups(rows, BATCH_TOKENS[scorer.device.type] // length):
        with evaluation_mode(scorer.model):
            nll -= sum(score.log_probability for score in scorer.score(group, greedy=False))
        done += sum(len(row.ids) - row.first_scored for row in group)
        yield Progress(stage="scoring", done=done, total=total, unit="tokens")
    return _result(name, "perplexity", nll, total, text, len(body), unknown=0)


def _pseudo(
    masked_lm: MaskedLM, text: str, max_length: int | None, sample: int | None, seed: int, name: str
) -> Generator[Progress, None, Perplexity]:
    length = _window_length(max_length, masked_lm.max_length)
    if sample is not None and sample < 1:
        raise InputError(f"sample is {sample}; expected the number of tokens to score, at least 1")
    before, body, after = split_special_tokens(masked_lm.tokenizer.encode(text))
    if not body:
        raise InputError("the text has no tokens for this model; give it a word")
    special = len(before) + len(after)
    if length <= special:
        raise InputError(f"max_length is {length}, and {special} special tokens leave no room in it")
    positions: Sequence[int] = range(len(body))
    if sample is not None and sample < len(body):
        positions = sorted(random.Random(seed).sample(positions, sample))
    total, nll, done = len(positions), 0.0, 0
    yield Progress(stage="scoring", done=0, total=total, unit="tokens")
    for group in in_groups(positions, masked_lm.batch_tokens // min(len(body) + special, length)):
        with evaluation_mode(masked_lm.model):
            nll += pseudo_nll(masked_lm, (before, body, after), group, length=length)
        done += len(group)
        yield Progress(stage="scoring", done=done, total=total, unit="tokens")
    unknown = sum(token == masked_lm.tokenizer.unk_token_id for token in body)
    return _result(name, "pseudo-perplexity", nll, total, text, len(body), unknown=unknown)


def _window_length(requested: int | None, positions: int) -> int:
    if requested is not None and not 1 <= requested <= positions:
        raise InputError(f"max_length is {requested}; expected 1 to {positions}, the positions of this model")
    return requested or positions


def _result(
    name: str,
    kind: Literal["perplexity", "pseudo-perplexity"],
    nll: float,
    scored: int,
    text: str,
    tokens: int,
    *,
    unknown: int,
) -> Perplexity:
    mean = nll / scored
    size = len(text.encode("utf-8", "surrogatepass"))
    return Perplexity(
        model=name,
        kind=kind,
        tokens=scored,
        bytes=size,
        nll=nll,
        perplexity=math.inf if mean > 700 else math.exp(mean),  # exp(710) is not a float any more
        bits_per_byte=mean * tokens / size / math.log(2),
        text_tokens=tokens,
        unknown=unknown,
    )


@dataclass(frozen=True)
class LineScore:
    """`log_probability` is the sum over the `tokens` scored, in nats; `mean` is the mean per token, None without any.
    A row without a text has no log-probability either.

    `unscored` is 1 if the first token had nothing to be predicted from. `long` lines have
    more tokens than the model reads at once and were scored in windows.
    """

    line: int
    log_probability: float | None
    tokens: int
    mean: float | None
    unscored: int
    long: bool

    def to_text(self, text: str) -> str:
        total, mean = ("-" if value is None else f"{value:.4f}" for value in (self.log_probability, self.mean))
        return f"{total}\t{self.tokens}\t{mean}\t{' '.join(text.splitlines())}\n"


class LineScores(Result):
    """The scores of all lines, and their sums."""

    model: str
    kind: Literal["log-probability", "pseudo-log-likelihood"]
    log_probability: float
    tokens: int
    lines: list[LineScore]
    _long: int = PrivateAttr(0)
    _unscored: int = PrivateAttr(0)
    _missing_note: str | None = PrivateAttr(None)

    def notes(self) -> list[str]:
        """What a reader of the numbers should know."""
        notes = [] if self._missing_note is None else [self._missing_note]
        if self.kind != "log-probability":
            notes.append(
                f"{self.kind}: each token was masked in turn and predicted from both sides; "
                "not comparable with the scores of a GPT"
            )
        if self._long:
            notes.append(
                f"scored in windows, for more tokens than the model reads at once: {count_of(self._long, 'line')}"
            )
        if self._unscored:
            notes.append(
                f"the first tokens of {count_of(self._unscored, 'line')} were not scored: "
                "the tokenizer puts no token before a text"
            )
        return notes

    def to_text(self) -> str:
        return f"{count_of(len(self.lines), 'line')}, {self.kind} {self.log_probability:.4f}, {self.tokens:,} tokens"

    def to_table(self) -> Table:
        names = ("line", "log_probability", "tokens", "mean")
        return names, [[getattr(line, name) for name in names] for line in self.lines]


def scoring_events(
    model: nn.Module, tokenizer: Tokenizer | None, rows: RowReader, *, missing: Missing = "keep", name: str = ""
) -> Generator[Event, None, LineScores]:
    """Score rows and yield each score as a `ResultItem`: log-probability, tokens, mean and text, separated by tabs.

    The result has the sums; whoever needs the scores collects the items.
    """
    pending: deque[Row] = deque()

    def remember() -> Iterator[str]:
        for row in rows.read(missing):
            pending.append(row)
            yield row.texts[0] or ""

    log_probability, tokens, long, unscored, done, found = 0.0, 0, 0, 0, 0, False
    yield TextPiece(text="")  # lines are printed as they come
    yield Progress(stage="scoring", done=0, unit="lines")  # its clock starts
    for score in score_lines(model, tokenizer, remember()):
        row = pending.popleft()
        score = replace(score, line=row.line, log_probability=None if row.is_missing else score.log_probability)
        log_probability += score.log_probability or 0.0
        tokens += score.tokens
        long += score.long
        unscored += score.unscored
        done, found = done + 1, found or not row.is_missing
        yield ResultItem(text=score.to_text(row.texts[0] or ""), item=score)
        yield Progress(stage="scoring", done=done, unit="lines")
    if not found:
        raise InputError(f"{rows.name} has no row with a text; expected at least one")
    kind: Literal["log-probability", "pseudo-log-likelihood"] = "log-probability"
    if can(model, "text-encoder"):
        kind = "pseudo-log-likelihood"
    result = LineScores(model=name, kind=kind, log_probability=log_probability, tokens=tokens, lines=[])
    result._long, result._unscored, result._missing_note = long, unscored, rows.missing_note(missing)
    return result


def score_lines(
    model: nn.Module, tokenizer: Tokenizer | None, lines: Iterable[str], *, at_once: int = AT_ONCE
) -> Iterator[LineScore]:
    """Score each line by itself, in order; memory does not grow with their number. The end of a line is not scored."""
    score: Callable[[Sequence[str]], Iterable[Score]]
    if can(model, "text-encoder"):
        masked_lm = MaskedLM.from_model(model, tokenizer, purpose="pseudo-log-likelihood")
        score = partial(map, partial(_score_masked, masked_lm))
    else:
        score = partial(_score_causal, CausalScorer.of(model, tokenizer, doing="scoring"))
    number, source = 0, iter(lines)
    while block := list(islice(source, at_once)):
        with evaluation_mode(model):
            scores = list(score(block))
        for log_probability, tokens, unscored, long in scores:
            number += 1
            mean = log_probability / tokens if tokens else None
            yield LineScore(number, log_probability, tokens, mean, unscored, long)


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


def _score_masked(masked_lm: MaskedLM, line: str) -> Score:
    """Each token is masked in the middle of its own window."""
    before, body, after = parts = split_special_tokens(masked_lm.tokenizer.encode(line))
    if not body:
        return 0.0, 0, 0, False
    special = len(before) + len(after)
    nll = 0.0
    for group in in_groups(range(len(body)), masked_lm.batch_tokens // min(len(body) + special, masked_lm.max_length)):
        nll += pseudo_nll(masked_lm, parts, group, length=masked_lm.max_length)
    return -nll, len(body), 0, len(body) + special > masked_lm.max_length
