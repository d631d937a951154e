"""Speculative decoding: a small model drafts tokens that the model reads in one pass (Leviathan et al. 2023).

One pass over several tokens costs little more than one over a single token, which is limited by reading the weights.
The search sees the model's own logits at every token, so it chooses the tokens that it chooses without the assistant,
greedy or sampled with any filter, up to the rounding of the logits. Drafts that are not chosen are removed again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.inference.generation.decoder import fast_decoder
from regard.models.family import describe_model
from regard.nn.cache import DecoderState
from regard.nn.causal_decoder import CausalDecoder
from regard.text import Tokenizer

FIRST_DRAFT = 5  # tokens
MAX_DRAFT = 7  # with the token before them, the model reads up to 8 rows: a size that is packed for a CPU anyway


def check_assistant(
    model: nn.Module, tokenizer: Tokenizer | None, assistant: nn.Module, assistant_tokenizer: Tokenizer | None
) -> None:
    """Raise InputError unless both are causal models with the same vocabulary."""
    for one, name in ((model, "the model"), (assistant, "its assistant model")):
        if not isinstance(one, CausalDecoder):
            raise InputError(
                f"expected a causal model such as a GPT-2 or a Llama as {name}, and this is {describe_model(one)}"
            )
    if tokenizer is None or assistant_tokenizer is None or tokenizer.vocabulary != assistant_tokenizer.vocabulary:
        own, others = (0 if one is None else len(one.vocabulary) for one in (tokenizer, assistant_tokenizer))
        raise InputError(
            f"the assistant model has another vocabulary ({others:,} tokens) than the model ({own:,} tokens), so its "
            "drafts mean something else; use a smaller model with the same tokenizer"
        )


def assist(
    model: Any, assistant: CausalDecoder, ids: Tensor, state: object, *, steps: int
) -> tuple[AssistedDecoder, AssistedState]:
    """Return a decoder of up to `steps` steps that continues the `state` of one prompt (1, T)."""
    if not isinstance(state, DecoderState) or len(ids) != 1:
        raise ValueError("an assistant model drafts for one row of a causal model")
    context, device = assistant.config.max_position_embeddings, next(assistant.parameters()).device
    own = assistant.start(ids.to(device))[1] if ids.shape[1] <= context else None
    drafter = fast_decoder(assistant, device, steps=steps, argmax_only=True)
    return AssistedDecoder(model, drafter, context), AssistedState(state, own, ids[0].tolist(), steps)


@dataclass(eq=False)
class AssistedState:
    """The states of both models after the same text: `tokens` are all its tokens, the prompt included.

    The model has also read the tokens `drafted` after it; `logits` are those of the token after each of them.
    """

    state: DecoderState
    assistant: DecoderState | None  # None: the prompt is too long for it
    tokens: list[int]
    remaining: int  # steps
    drafted: list[int] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    draft_length: int = FIRST_DRAFT

    def reorder(self, index: Tensor) -> None:
        raise ValueError("an assistant model drafts for one row, whose order cannot change")


class AssistedDecoder:
    """The model as a decoder of one row; steps whose token was drafted by the assistant need no pass."""

    def __init__(self, model: Any, assistant: Any, assistant_context: int) -> None:
        self.model, self.assistant, self.assistant_context = model, assistant, assistant_context

    def step(self, tokens: Tensor, state: AssistedState, /) -> tuple[Tensor, AssistedState]:
        """Append a token (1,): the logits (1, V) of the next token, and the state."""
        token = int(tokens[0])
        state.remaining -= 1
        if state.drafted and state.drafted[0] == token:
            state.drafted.pop(0)
            state.tokens.append(token)
            return state.logits.pop(0), state
        rejected = bool(state.drafted)
        state.state.truncate(len(state.tokens))
        state.tokens.append(token)
        state.drafted = self._draft(state)
        if state.drafted:
            ids = torch.tensor([[token, *state.drafted]], device=tokens.device)
            first, *state.logits = self.model.logits(self.model.extend(ids, state.state)[0]).split(1)
        else:
            first, _ = self.model.step(tokens, state.state)
        change = -1 if rejected else 2
        state.draft_length = min(max(state.draft_length + change, 1), MAX_DRAFT)
        return first, state

    def _draft(self, state: AssistedState) -> list[int]:
        """The assistant's likeliest continuation of the text, as long as steps and its context allow."""
        room = self.assistant_context - len(state.tokens) + 1  # the last drafted token is not read
        count, own = min(state.draft_length, state.remaining, room), state.assistant
        if own is None or count < 1:
            return []
        own.truncate(len(state.tokens) - 1)
        unread = torch.tensor([state.tokens[own.cache.length :]], device=own.mask.device)
        if unread.shape[1] == 1:
            logits, own = self.assistant.step(unread[0], own)
        else:
            logits = self.assistant.logits(self.assistant.extend(unread, own)[:, -1])
        drafted = [int(logits.argmax())]
        while len(drafted) < count:
            logits, own = self.assistant.step(torch.tensor(drafted[-1:], device=unread.device), own)
            drafted.append(int(logits.argmax()))
        return drafted
