"""The log-probability that a causal model gives to the end of a row of token ids, in nats, many rows at once.

Knows a GPT and its begin token. Knows no file, no benchmark and no masked model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from regard.checkpoints.ready import BATCH_TOKENS, describe_model, require_tokenizer
from regard.data.batch import collate, group_by_token_budget
from regard.errors import InputError
from regard.inference.surprise import ROWS
from regard.models import Gpt
from regard.nn import Packed
from regard.text import Tokenizer

__all__ = ["CausalScorer", "ScoredIds", "SequenceScore"]

Value = TypeVar("Value")


class ScoredIds(NamedTuple):
    """Ids of which those from place `scored` on are scored, each from all before it; the last one is not read."""

    ids: Sequence[int]
    first_scored: int


class SequenceScore(NamedTuple):
    """The sum over the scored ids, and whether each of them was the model's first choice."""

    log_probability: float
    greedy: bool


@dataclass(frozen=True, eq=False)
class CausalScorer:
    """A GPT that is asked: with its tokenizer, and the id that opens a text where it has one."""

    model: Gpt
    tokenizer: Tokenizer
    begin: int | None

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Tokenizer | None, *, doing: str) -> CausalScorer:
        """Refuse a model that reads both ways; `doing` opens the error: "a benchmark"."""
        if not isinstance(model, Gpt):
            raise InputError(
                f"{doing} needs a model that predicts the next token, and this is {describe_model(model)} model; "
                "take a GPT-2, or what `regard pretrain gpt` wrote"
            )
        tokens = require_tokenizer(model, tokenizer)
        # A published config.json may name a begin token that the vocabulary lacks.
        known = [n for n in (model.config.bos_token_id, tokens.bos) if n is not None and n < model.config.vocab_size]
        return cls(model, tokens, known[0] if known else None)

    @property
    def positions(self) -> int:
        return self.model.config.max_position_embeddings

    @property
    def opening(self) -> list[int]:
        """What every text begins with."""
        return [] if self.begin is None else [self.begin]

    def score(self, rows: Sequence[ScoredIds]) -> list[SequenceScore]:
        """In the order of the rows. Each is read with others of its length, which changes nothing in its score."""
        device = self.model.embedding.tokens.weight.device
        found: list[SequenceScore | None] = [None] * len(rows)
        for group in group_by_token_budget([len(row.ids) - 1 for row in rows], BATCH_TOKENS[device.type]):
            for place, scored in zip(group, self._together([rows[place] for place in group], device), strict=True):
                found[place] = scored
        return [scored for scored in found if scored is not None]

    def _together(self, rows: Sequence[ScoredIds], device: torch.device) -> list[SequenceScore]:
        batch = collate([row.ids[:-1] for row in rows]).to(device)
        assert isinstance(batch.layout, Packed)
        hidden = self.model(batch.ids, batch.layout)
        ends = batch.layout.starts[1:].tolist()
        wanted = torch.cat([hidden[end - _size(row) : end] for end, row in zip(ends, rows, strict=True)])
        targets = torch.tensor([number for row in rows for number in row.ids[row.first_scored :]], device=device)
        values, firsts = self._tokens(wanted, targets)
        sizes = [_size(row) for row in rows]
        return [
            SequenceScore(sum(value), all(first))
            for value, first in zip(_cut(values, sizes), _cut(firsts, sizes), strict=True)
        ]

    def _tokens(self, hidden: Tensor, targets: Tensor) -> tuple[list[float], list[bool]]:
        """Of each target: its log-probability, and whether no token has a higher one."""
        values: list[float] = []
        firsts: list[bool] = []
        # A logit for each word of the vocabulary: never for more than some rows at once.
        for part, right in zip(torch.split(hidden, ROWS), torch.split(targets, ROWS), strict=True):
            shares = self.model.logits(part).float().log_softmax(-1)
            values += shares.gather(1, right[:, None])[:, 0].double().tolist()
            firsts += (shares.argmax(-1) == right).tolist()
        return values, firsts


def _size(row: ScoredIds) -> int:
    return len(row.ids) - row.first_scored


def _cut(values: list[Value], sizes: Sequence[int]) -> list[list[Value]]:
    """The list in pieces of these sizes."""
    start, pieces = 0, []
    for size in sizes:
        pieces.append(values[start : start + size])
        start += size
    return pieces
