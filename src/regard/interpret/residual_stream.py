"""The residual stream of a causal language model: the prompts that it reads, and its layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from regard.errors import InputError
from regard.inference.causal_lm import CausalScorer, prompt_ids
from regard.interpret.attention.maps import display_token
from regard.models.family import family_of
from regard.nn.stack import Stack
from regard.text import Tokenizer


def read_prompt(scorer: CausalScorer, text: str, *, max_tokens: int) -> list[int]:
    """The ids of a prompt; InputError if it has none, or too many."""
    ids = prompt_ids(scorer.tokenizer, text)
    limit = min(max_tokens, scorer.max_length)
    if not text.strip() or not 1 <= len(ids) <= limit:
        raise InputError(f"the prompt {text[:60]!r} has {len(ids):,} tokens; expected 1 to {limit:,}")
    return ids


def answer_token(tokenizer: Tokenizer, text: str) -> int:
    """The id of an answer that is one token. A word is taken as it follows other words, after a space."""
    spellings = [f" {text}", text] if text[:1].isalnum() else [text]
    pieces = [tokenizer.encode(spelling, add_special_tokens=False).ids for spelling in spellings]
    for ids in pieces:
        if len(ids) == 1:
            return ids[0]
    found = ", ".join(repr(display_token(tokenizer, one)) for one in pieces[0][:8])
    raise InputError(f"{text!r} is {len(pieces[0])} tokens ({found}); expected a word of one token, or its first token")


def last_stack(model: nn.Module) -> Stack:
    """The layers of a model with their final norm; of an encoder-decoder those of the decoder."""
    family = family_of(model)
    assert family is not None and family.stacks
    stack: Stack = getattr(model, family.stacks[-1])
    return stack


def token_names(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    return [display_token(tokenizer, one) for one in ids]
