"""Encoder-decoders against transformers: both stacks, all kinds of attention, tied and untied output, the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.nn.masks import Packed, Padded
from tests.parity.references import LENGTHS, VOCABULARY, Pair, close, ids, remove_padding

Pairs = Callable[[str], Pair]
NAMES = ["t5", "t5-untied", "t5-gelu", "bart", "bart-bare", "mbart", "marian", "marian-separate"]
TARGET_LENGTHS = (5, 8, 3, 6)
STEPS = 7


def targets() -> tuple[Tensor, Padded]:
    words = torch.randint(5, VOCABULARY, (len(TARGET_LENGTHS), 8), generator=torch.Generator().manual_seed(3))
    return words, Padded.from_lengths(TARGET_LENGTHS)


def run(pair: Pair) -> Any:
    (tokens, layout), (words, _) = ids(), targets()
    assert layout.mask is not None
    with torch.no_grad():
        return pair.theirs(
            tokens,
            attention_mask=layout.mask.long(),
            decoder_input_ids=words,
            output_hidden_states=True,
            output_attentions=True,
        )


@pytest.mark.parametrize("name", NAMES)
def test_every_hidden_state_map_and_logit(pair: Pairs, name: str) -> None:
    one, theirs = pair(name), run(pair(name))
    (tokens, layout), (words, _) = ids(), targets()
    with torch.no_grad(), regard.record(one.ours) as tape:
        last = one.ours(tokens, words, layout)
        logits = one.ours.logits(last)
    encoder, decoder = tape.hidden("encoder"), tape.hidden("decoder")
    assert (len(encoder), len(decoder)) == ((3, 4) if name == "t5-untied" else (4, 3))
    for ours, expected in zip(encoder, theirs.encoder_hidden_states, strict=True):
        close(remove_padding(ours, layout), remove_padding(expected, layout))
    for ours, expected in zip(decoder, theirs.decoder_hidden_states, strict=True):
        close(ours, expected)
    for ours, expected in zip(tape.attention("self", "encoder"), theirs.encoder_attentions, strict=True):
        close(remove_padding(ours.transpose(1, 2), layout), remove_padding(expected.transpose(1, 2), layout))
    for ours, expected in zip(tape.attention("self", "decoder"), theirs.decoder_attentions, strict=True):
        close(ours, expected)
        assert not ours.triu(1).any()
    for ours, expected in zip(tape.attention("cross"), theirs.cross_attentions, strict=True):
        assert ours.shape == (4, 4 if name.startswith("t5") else 6, 8, 9)
        close(ours, expected)
    if name != "bart-bare":
        close(logits, theirs.logits)


@pytest.mark.parametrize("name", NAMES)
def test_packed_padded_and_single_outputs_are_equal(pair: Pairs, name: str) -> None:
    one, theirs = pair(name), run(pair(name))
    (tokens, layout), (words, target_layout) = ids(), targets()
    with torch.no_grad():
        packed = one.ours(
            remove_padding(tokens, layout),
            remove_padding(words, target_layout),
            Packed.from_lengths(LENGTHS),
            Packed.from_lengths(TARGET_LENGTHS),
        )
        padded = one.ours(tokens, words, layout, target_layout)
        close(remove_padding(padded, target_layout), remove_padding(theirs.decoder_hidden_states[-1], target_layout))
        close(packed, remove_padding(padded, target_layout))
        for row, (length, said) in enumerate(zip(LENGTHS, TARGET_LENGTHS, strict=True)):
            alone = one.ours(tokens[row : row + 1, :length], words[row : row + 1, :said])
            close(padded[row, :said], alone[0])


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bart-bare"])
def test_cached_decoding(pair: Pairs, name: str) -> None:
    one = pair(name)
    tokens, layout = ids()
    assert layout.mask is not None
    ours, theirs, state, past = [], [], None, None
    said = torch.full((len(LENGTHS), 1), one.theirs.config.decoder_start_token_id)
    our_tokens, their_tokens = [said[:, 0]], [said[:, 0]]
    with torch.no_grad():
        for _ in range(STEPS):
            scores, state = one.ours.start(tokens, layout) if state is None else one.ours.step(our_tokens[-1], state)
            ours.append(scores)
            our_tokens.append(scores.argmax(-1))
            output = one.theirs(
                tokens,
                attention_mask=layout.mask.long(),
                decoder_input_ids=their_tokens[-1][:, None],
                past_key_values=past,
                use_cache=True,
            )
            past = output.past_key_values
            theirs.append(output.logits[:, -1])
            their_tokens.append(theirs[-1].argmax(-1))
        words = torch.stack(our_tokens, dim=1)
        assert words.tolist() == torch.stack(their_tokens, dim=1).tolist()
        close(torch.stack(ours), torch.stack(theirs))
        uncached = one.ours.logits(one.ours(tokens, words[:, :-1], layout))
        close(torch.stack(ours, dim=1), uncached)
    assert len({tuple(row) for row in words.tolist()}) > 1, "every source gives the same words: nothing is compared"


def test_distances_beyond_the_last_bucket(pair: Pairs) -> None:
    one = pair("t5")
    tokens = torch.arange(40)[None] % 30 + 5
    with torch.no_grad():
        theirs = one.theirs(tokens, decoder_input_ids=tokens, output_attentions=True)
        with regard.record(one.ours) as tape:
            close(one.ours.logits(one.ours(tokens, tokens)), theirs.logits)
    close(tape.attention("self", "encoder")[0], theirs.encoder_attentions[0])
    close(tape.attention("self", "decoder")[0], theirs.decoder_attentions[0])


def test_bfloat16_is_close(pair: Pairs) -> None:
    one = pair("t5")
    (tokens, layout), (words, _) = ids(), targets()
    half, _ = regard.load(one.folder, dtype=torch.bfloat16)
    with torch.no_grad():
        ours = half(tokens, words, layout)
        assert ours.dtype == torch.bfloat16
        close(ours.float(), one.ours(tokens, words, layout), 0.1)
