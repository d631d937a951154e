"""What a language model expects next: the likeliest tokens after a text and, in both directions, before it.

A causal model (GPT) predicts the next token. A bidirectional language model (ELMo) is two models: one predicts the next
token from those before it, the other the previous token from those after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoints.loaded_model import require_tokenizer
from regard.data.batch import collate
from regard.errors import InputError
from regard.inference.causal_lm import prompt_ids
from regard.inference.generation.text_generator import token_text
from regard.inference.masked_lm import Candidate
from regard.models.family import can, describe_model
from regard.nn.training import evaluation_mode
from regard.render.result import Result, Table
from regard.render.terminal import probability_table
from regard.text import Tokenizer

MAX_TOKENS = 512  # of a text


class NextTokens(Result):
    """The likeliest tokens after the text and, if the model reads in both directions, those before it; best first.

    `targets` has the probability that each given word follows: the product over its tokens.
    """

    text: str
    following: list[Candidate]
    preceding: list[Candidate] | None = None
    targets: dict[str, float] | None = None

    def to_text(self) -> str:
        parts = [f"{self.text} ...", "", *probability_table(_rows(self.following))]
        if self.targets is not None:
            parts += ["", "these words", *probability_table(list(self.targets.items()))]
        if self.preceding is not None:
            parts += ["", f"... {self.text}", "", *probability_table(_rows(self.preceding))]
        return "\n".join(parts)

    def to_table(self) -> Table:
        lists = (("following", self.following), ("preceding", self.preceding or []))
        rows = [(name, one.token, one.id, one.probability) for name, found in lists for one in found]
        return ("direction", "token", "id", "probability"), rows


def _rows(candidates: Sequence[Candidate]) -> list[tuple[str, float]]:
    return [(one.token, one.probability) for one in candidates]


@torch.inference_mode()
def predict_next_token(
    model: nn.Module,
    tokenizer: Tokenizer | None,
    text: str,
    *,
    top: int = 10,
    targets: Sequence[str] | None = None,
) -> NextTokens:
    """Predict the token after a text, given all of it; InputError if the model predicts none."""
    if not (can(model, "causal-lm") or can(model, "bidirectional-lm")):
        raise InputError(
            f"the next token needs a language model with its output layer, and this is {describe_model(model)} model; "
            "use a GPT-2 or an ELMo, such as regard-gpt"
        )
    tokens = require_tokenizer(model, tokenizer)
    ids = tokens.encode(text, add_special_tokens=False).ids
    limit = min(getattr(model.config, "max_position_embeddings", MAX_TOKENS), MAX_TOKENS)
    if not ids or len(ids) > limit - 2:
        raise InputError(f"the text has {len(ids):,} tokens; expected 1 to {limit - 2}: give the words before the next")
    with evaluation_mode(model):
        both = can(model, "bidirectional-lm")
        before = [*_special(tokens, "cls"), *ids] if both else prompt_ids(tokens, text)  # as `generate` reads it
        following = _log_probabilities(model, before)[0][-1]
        preceding = _log_probabilities(model, [*ids, *_special(tokens, "sep")])[1][0] if both else None
        scores = {target: _score(model, tokens, before, target) for target in targets or ()}
    return NextTokens(
        text=text,
        following=_best(tokens, following, top),
        preceding=None if preceding is None else _best(tokens, preceding, top),
        targets=scores if targets is not None else None,
    )


def _log_probabilities(model: Any, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The log-probabilities (T, V) of the token after each position and of the one before it.

    A causal model has the first only; the second is then the same.
    """
    batch = collate([list(ids)]).to(next(model.parameters()).device)
    logits = model.logits(model(batch.ids, batch.layout))
    ahead, back = logits if isinstance(logits, tuple) else (logits, logits)
    return ahead.double().log_softmax(-1).cpu(), back.double().log_softmax(-1).cpu()


def _score(model: Any, tokenizer: Tokenizer, ids: list[int], target: str) -> float:
    """The probability that the target follows the ids."""
    pieces = tokenizer.encode(f" {target.strip()}", add_special_tokens=False).ids
    if not pieces:
        raise InputError(f"the target {target!r} has no tokens; expected a word")
    log_probabilities = _log_probabilities(model, [*ids, *pieces[:-1]])[0][-len(pieces) :]
    return math.exp(sum(float(row[piece]) for row, piece in zip(log_probabilities, pieces, strict=True)))


def _best(tokenizer: Tokenizer, log_probabilities: Tensor, top: int) -> list[Candidate]:
    best = log_probabilities.topk(min(top, len(log_probabilities)))
    return [
        Candidate(token_text(tokenizer, token), token, math.exp(value))
        for token, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def _special(tokenizer: Tokenizer, role: str) -> list[int]:
    token: int | None = getattr(tokenizer, f"{role}_token_id")
    return [] if token is None else [token]
