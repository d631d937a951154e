"""The residual stream of a causal language model: the prompts that it reads, its layers, and hooks on their modules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

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


def decoder_stack(model: nn.Module) -> Stack:
    """The layers of a causal model with their final norm."""
    family = family_of(model)
    assert family is not None and family.stacks
    stack: Stack = getattr(model, family.stacks[-1])
    return stack


def token_names(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    return [display_token(tokenizer, one) for one in ids]


@contextmanager
def hook_input(module: nn.Module, function: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """Call `function` with the first input of a module; what it returns, if anything, replaces that input.

    Threads share hooks, so a hook acts in the thread that set it only.
    """
    thread = threading.get_ident()

    def hook(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        changed = function(inputs[0]) if threading.get_ident() == thread else None
        return None if changed is None else (changed, *inputs[1:])

    handle = module.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def hook_output(module: nn.Module, function: Callable[[Tensor], None]) -> Iterator[None]:
    """Call `function` with the output of a module, in this thread only."""
    thread = threading.get_ident()

    def hook(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        if threading.get_ident() == thread:
            function(output)

    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
