"""Perplexity of a causal model and pseudo-perplexity of a masked model on a text.

A causal model reads overlapping windows; each token is scored once, given the tokens before it in its window. A masked
model sees both sides: each token is masked in turn, in the middle of its own window. The two are not comparable.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Generator, Sequence
from typing import Literal

from pydantic import Field
from torch import nn

from regard.data.batch import in_groups
from regard.data.files import display_name, read_all_lines
from regard.errors import InputError
from regard.events import Progress, drain
from regard.inference.causal_lm import CausalScorer
from regard.inference.masked_lm import BATCH_TOKENS, MaskedLM, pseudo_nll
from regard.inference.windows import split_special_tokens
from regard.models.family import can, describe_model
from regard.nn.training import evaluation_mode
from regard.render.result import Result
from regard.text import Tokenizer


class Perplexity(Result):
    """`nll` is the sum over the `tokens` scored, in nats; `perplexity` is exp(nll / tokens).

    `bits_per_byte` covers all `text_tokens` and `bytes` of the text. Tokens that were not scored (outside a sample, or
    the first token if the model has no begin token) count there with the mean of the scored ones.
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
            notes.append("the first token was not scored: this model has no begin token to predict it from")
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


def read_text_file(path: str | os.PathLike[str]) -> str:
    """The text of a file or of standard input, compressed or not: its lines joined by line feeds."""
    text = "\n".join(read_all_lines(path))
    if not text.strip():
        raise InputError(f"{display_name(path)} is empty; expected a text to score")
    return text


def measure_perplexity(
    model: nn.Module,
    tokenizer: Tokenizer | None,
    text: str,
    *,
    stride: int | None = None,
    max_length: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Perplexity:
    """`perplexity_events` run to its end; `on_progress` is called with the number of scored tokens and the total."""
    events = perplexity_events(model, tokenizer, text, stride=stride, max_length=max_length, sample=sample, seed=seed)
    return drain(events, lambda event: on_progress(event.done, event.total or 0))


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
        raise InputError(f"the text has {len(body)} tokens and the model no begin token: nothing can be predicted")
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
