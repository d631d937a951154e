"""Log-probabilities that a causal language model assigns to tokens, in nats.

`CausalScorer` is the only causal scorer: perplexity, line scores and benchmarks build on it. Reads no files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.checkpoints.loaded_model import require_tokenizer
from regard.data.batch import collate, group_by_token_budget
from regard.errors import InputError
from regard.models.family import can, describe_model
from regard.nn.masks import Packed
from regard.text import Tokenizer
from regard.text.tokenizer import Encoding

# Tokens per batch: each scored position gets one row as wide as the vocabulary.
BATCH_TOKENS = defaultdict(lambda: 16384, cpu=2048)  # by device
ROWS = 512  # rows of logits at a time: 100 MB for GPT-2's vocabulary


class ScoredIds(NamedTuple):
    """Ids of which those from `first_scored` on are scored, each given all ids before it; the last id is not read."""

    ids: Sequence[int]
    first_scored: int


class SequenceScore(NamedTuple):
    """The sum over the scored ids, and whether each of them is the model's first choice."""

    log_probability: float
    greedy: bool


def begin_token(model: Any, tokenizer: Tokenizer) -> int | None:
    """The token that begins a text, if the model has one."""
    # A published config.json may name a token outside the vocabulary.
    candidates = (getattr(model.config, "bos_token_id", None), tokenizer.bos_token_id)
    return next((n for n in candidates if n is not None and n < model.config.vocab_size), None)


def opening_ids(model: Any, tokenizer: Tokenizer) -> list[int]:
    """The ids before the first token of a text that is scored: the special tokens that the tokenizer puts there.

    If it puts none, the begin token counts only if it is also an end token. It then separates the texts of the training
    data, as in GPT-2. SmolLM2's begin token, in contrast, begins the messages of a chat.
    """
    before, body, _ = split_special_tokens(tokenizer.encode("a"))
    if before and body:
        return before
    ends = {model.config.eos_token_id, tokenizer.eos_token_id, *getattr(model.config, "other_eos_token_id", ())}
    begin = begin_token(model, tokenizer)
    return [] if begin is None or begin not in ends else [begin]


def prompt_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text to continue, after the special tokens that the tokenizer puts before a text.

    A text that begins with them, as the prompts of chat templates do, does not get them twice.
    """
    before, body, _ = split_special_tokens(tokenizer.encode(text))
    return body if before and body[: len(before)] == before else [*before, *body]


@dataclass(frozen=True, eq=False)
class CausalScorer:
    """A causal model with its tokenizer and the ids before the first token of a text."""

    model: Any
    tokenizer: Tokenizer
    opening: list[int]

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Tokenizer | None, *, doing: str) -> CausalScorer:
        """InputError for other families; `doing` is the subject of the message: "a benchmark"."""
        if not can(model, "causal-lm"):
            raise InputError(
                f"{doing} needs a model that predicts the next token, and this is {describe_model(model)} model; "
                "use a GPT-2, or a model trained by `regard pretrain gpt`"
            )
        tokens = require_tokenizer(model, tokenizer)
        return cls(model, tokens, opening_ids(model, tokens))

    @property
    def max_length(self) -> int:
        return int(self.model.config.max_position_embeddings)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.embedding.tokens.weight.device
        return device

    def window_rows(
        self, ids: Sequence[int], *, length: int | None = None, stride: int | None = None
    ) -> list[ScoredIds]:
        """Rows that score every id but the first once, in overlapping windows; by default `stride` is half a window."""
        length = length or self.max_length
        return [
            ScoredIds(ids[window.start : window.end + 1], window.scored - window.start + 1)
            for window in windows(len(ids) - 1, length, stride or max(1, length // 2))
        ]

    def score(self, rows: Sequence[ScoredIds], *, greedy: bool = True) -> list[SequenceScore]:
        """Scores in the order of the rows. Rows are batched by length, which does not change a score.

        Without `greedy`, first choices are not computed, and the field is False.
        """
        scores: list[SequenceScore | None] = [None] * len(rows)
        for group in group_by_token_budget([len(row.ids) - 1 for row in rows], BATCH_TOKENS[self.device.type]):
            for index, score in zip(group, self._score_batch([rows[i] for i in group], greedy), strict=True):
                scores[index] = score
        return [score for score in scores if score is not None]

    def _score_batch(self, rows: Sequence[ScoredIds], greedy: bool) -> list[SequenceScore]:
        batch = collate([row.ids[:-1] for row in rows]).to(self.device)
        assert isinstance(batch.layout, Packed)
        hidden = self.model(batch.ids, batch.layout)
        sizes = [len(row.ids) - row.first_scored for row in rows]
        ends = batch.layout.starts[1:].tolist()
        scored = torch.cat([hidden[end - size : end] for end, size in zip(ends, sizes, strict=True)])
        targets = torch.tensor([token for row in rows for token in row.ids[row.first_scored :]], device=self.device)
        values, firsts = self._score_tokens(scored, targets, greedy)
        scores, start = [], 0
        for size in sizes:
            end = start + size
            scores.append(SequenceScore(sum(values[start:end]), greedy and all(firsts[start:end])))
            start = end
        return scores

    def _score_tokens(self, hidden: Tensor, targets: Tensor, greedy: bool) -> tuple[list[float], list[bool]]:
        """For each target its log-probability, and whether no token has a higher one."""
        values: list[float] = []
        firsts: list[bool] = []
        for part, right in zip(torch.split(hidden, ROWS), torch.split(targets, ROWS), strict=True):
            log_probabilities = self.model.logits(part).float().log_softmax(-1)
            values += log_probabilities.gather(1, right[:, None])[:, 0].double().tolist()
            if greedy:
                firsts += (log_probabilities.argmax(-1) == right).tolist()
        return values, firsts


class Window(NamedTuple):
    """A causal model reads ids [start, end) and is scored on the ids that follow positions [scored, end)."""

    start: int
    scored: int
    end: int


def windows(count: int, length: int, stride: int) -> Iterator[Window]:
    """Windows of at most `length` ids, `stride` apart, that score the successor of each of `count` ids once."""
    scored = 0
    for start in range(0, count, stride):
        end = min(start + length, count)
        yield Window(start, scored, end)
        if end == count:
            return
        scored = end


def split_special_tokens(encoding: Encoding) -> tuple[list[int], list[int], list[int]]:
    """The special tokens before a text, the ids of the text (empty if it has none), and the special tokens after it."""
    inner = [position for position, special in enumerate(encoding.special_tokens_mask) if not special]
    if not inner:
        return encoding.ids, [], []
    first, end = inner[0], inner[-1] + 1
    return encoding.ids[:first], encoding.ids[first:end], encoding.ids[end:]
