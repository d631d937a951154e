"""Causal language models against transformers: hidden states, attention maps, logits, and cached decoding."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import regard
from regard.interpret.logit_lens import hidden_states_before_head, output_head
from regard.nn.masks import Packed
from tests.parity.references import DECODERS, LENGTHS, Pair, close, ids, remove_padding

Pairs = Callable[[str], Pair]
WITH_OUTPUT = [name for name in DECODERS if not name.endswith("bare")]
STEPS = 6


@pytest.mark.parametrize("name", DECODERS)
def test_every_hidden_state_map_and_logit(pair: Pairs, name: str) -> None:
    one = pair(name)
    tokens, layout = ids()
    assert layout.mask is not None
    with torch.no_grad():
        theirs = one.theirs(
            tokens, attention_mask=layout.mask.long(), output_hidden_states=True, output_attentions=True
        )
        with regard.record(one.ours) as tape:
            last = one.ours(tokens, layout)
    assert len(tape.hidden()) == len(theirs.hidden_states) == 4
    for ours, expected in zip(tape.hidden(), theirs.hidden_states, strict=True):
        close(remove_padding(ours, layout), remove_padding(expected, layout))
    for ours, expected in zip(tape.attention(), theirs.attentions, strict=True):
        close(remove_padding(ours.transpose(1, 2), layout), remove_padding(expected.transpose(1, 2), layout))
        assert not ours.triu(1).any()
    if name in WITH_OUTPUT:
        close(remove_padding(one.ours.logits(last), layout), remove_padding(theirs.logits, layout))


@pytest.mark.parametrize("name", DECODERS)
def test_packed_padded_and_single_outputs_are_equal(pair: Pairs, name: str) -> None:
    one = pair(name)
    tokens, layout = ids()
    with torch.no_grad():
        padded = one.ours(tokens, layout)
        close(one.ours(remove_padding(tokens, layout), Packed.from_lengths(LENGTHS)), remove_padding(padded, layout))
        close(
            remove_padding(one.ours(tokens), layout), remove_padding(padded, layout)
        )  # causal attention does not see right padding
        for row, length in enumerate(LENGTHS):
            close(padded[row, :length], one.ours(tokens[row : row + 1, :length])[0])


def their_greedy(pair: Pair, prompt: Tensor, *, steps: int) -> tuple[list[int], Tensor]:
    """The tokens and the logits (steps, V) of one prompt, continued with transformers' cache."""
    said, scores, past = prompt[None], [], None
    words: list[int] = []
    for _ in range(steps):
        output = pair.theirs(said, past_key_values=past, use_cache=True)
        past = getattr(output, "past_key_values", None)
        scores.append(output.logits[0, -1])
        words.append(int(scores[-1].argmax()))
        new = torch.tensor([words[-1:]])
        said = torch.cat([said, new], dim=1) if past is None else new  # openai-gpt has no cache
    return words, torch.stack(scores)


@pytest.mark.parametrize("name", WITH_OUTPUT)
def test_cached_decoding(pair: Pairs, name: str) -> None:
    one = pair(name)
    tokens, layout = ids()
    with torch.no_grad():
        scores, state = one.ours.start(tokens, layout)
        every = [scores]
        said: list[Tensor] = []
        for _ in range(STEPS - 1):
            said.append(every[-1].argmax(-1))
            scores, state = one.ours.step(said[-1], state)
            every.append(scores)
        words, logits = torch.stack([*said, every[-1].argmax(-1)], dim=1), torch.stack(every, dim=1)
        for row, length in enumerate(LENGTHS):
            prompt = tokens[row, :length]
            expected_tokens, expected_logits = their_greedy(one, prompt, steps=STEPS)
            assert words[row].tolist() == expected_tokens
            close(logits[row], expected_logits)
            whole = torch.cat([prompt, words[row, :-1]])[None]
            close(logits[row], one.ours.logits(one.ours(whole))[0, length - 1 :])
    assert len({tuple(row) for row in words.tolist()}) > 1, "every prompt gives the same words: nothing is compared"


@pytest.mark.parametrize("name", WITH_OUTPUT)
def test_logit_lens(pair: Pairs, name: str) -> None:
    """The last layer's lens is the model's logits; that of other layers their final norm and output layer."""
    one = pair(name)
    tokens = ids()[0][:1]
    body = one.theirs.base_model
    names = [name for name in ("ln_f", "norm", "final_layer_norm") if hasattr(body, name)]
    final_norm = getattr(body, names[0]) if names else torch.nn.Identity()
    scaling = getattr(one.theirs.config, "logits_scaling", 1.0)
    cap = getattr(one.theirs.config, "final_logit_softcapping", None)
    with torch.no_grad():
        theirs = one.theirs(tokens, output_hidden_states=True)
        states = hidden_states_before_head(one.ours, tokens)
        for ours, state in zip(states[:-1], theirs.hidden_states[:-1], strict=True):
            logits = one.theirs.lm_head(final_norm(state)) / scaling
            close(output_head(one.ours)(ours), logits if cap is None else cap * torch.tanh(logits / cap))
        close(output_head(one.ours)(states[-1]), theirs.logits)


@pytest.mark.parametrize("name", ["gpt2", "gpt-neo", "gptj", "qwen2", "qwen3", "gemma2", "gemma3-text"])
def test_tape_of_cached_decoding_equals_one_forward_pass(pair: Pairs, name: str) -> None:
    one = pair(name)
    tokens = ids()[0][:1]
    with torch.no_grad():
        with regard.record(one.ours) as whole:
            one.ours(tokens)
        with regard.record(one.ours) as steps:
            _, state = one.ours.start(tokens[:, :4])
            for word in tokens[0, 4:]:
                _, state = one.ours.step(word[None], state)
    for step, expected in zip(steps.hidden(), whole.hidden(), strict=True):
        close(step, expected)
    for step, expected in zip(steps.attention(), whole.attention(), strict=True):
        close(step, expected)


@pytest.mark.parametrize("name", ["gpt2", "mistral", "qwen3", "gemma2", "gemma3-text"])
def test_bfloat16_is_close(pair: Pairs, name: str) -> None:
    one = pair(name)
    tokens, layout = ids()
    half, _ = regard.load(one.folder, dtype=torch.bfloat16)
    with torch.no_grad():
        ours = half(tokens, layout)
        assert ours.dtype == torch.bfloat16
        expected = remove_padding(one.ours(tokens, layout), layout)
        assert (remove_padding(ours.float(), layout) - expected).norm() < 0.03 * expected.norm()
