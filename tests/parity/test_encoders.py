"""Encoders against transformers: hidden states, attention maps, heads, layouts and segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.models.family import get_family
from regard.nn.masks import Packed, Padded
from tests.parity.references import LENGTHS, REFERENCES, Pair, close, ids, reference_family, remove_padding

ENCODERS = [name for name in REFERENCES if get_family(reference_family(name)).can("text-encoder")]
BASIC = ["bert", "distilbert", "roberta", "xlm-roberta", "camembert", "mpnet", "electra", "albert", "modernbert"]
BASIC += ["deberta-v2", "deberta-v2-conv", "nomic-bert", "gte", "jina-bert", "eurobert", "embeddinggemma"]
Pairs = Callable[[str], Pair]


def batch_for(pair: Pair) -> tuple[Tensor, Padded]:
    """A batch with the padding id that transformers' RoBERTa needs for its positions."""
    return ids(padding=pair.theirs.config.pad_token_id)


def run(pair: Pair, tokens: Tensor, layout: Padded, **options: Any) -> Any:
    mask = None if layout.mask is None else layout.mask.long()
    with torch.no_grad():
        return pair.theirs(tokens, attention_mask=mask, output_hidden_states=True, output_attentions=True, **options)


@pytest.mark.parametrize("name", ENCODERS)
def test_every_hidden_state_and_map(pair: Pairs, name: str) -> None:
    one = pair(name)
    tokens, layout = batch_for(one)
    theirs = run(one, tokens, layout)
    with torch.no_grad(), regard.record(one.ours) as tape:
        last = one.ours(tokens, layout)
    assert len(tape.hidden()) == len(theirs.hidden_states) == 4
    for ours, expected in zip(tape.hidden(), theirs.hidden_states, strict=True):
        close(remove_padding(ours, layout), remove_padding(expected, layout))
    close(last, tape.hidden()[-1], 0)
    for ours, expected in zip(tape.attention(), theirs.attentions, strict=True):
        assert ours.shape == (len(LENGTHS), one.ours.config.num_attention_heads, 9, 9)
        close(remove_padding(ours.transpose(1, 2), layout), remove_padding(expected.transpose(1, 2), layout))


@pytest.mark.parametrize("name", ENCODERS)
def test_packed_padded_and_single_outputs_are_equal(pair: Pairs, name: str) -> None:
    one = pair(name)
    tokens, layout = batch_for(one)
    with torch.no_grad():
        padded = one.ours(tokens, layout)
        with regard.record(one.ours) as tape:
            packed = one.ours(remove_padding(tokens, layout), Packed.from_lengths(LENGTHS))
        close(packed, remove_padding(padded, layout))
        theirs = run(one, tokens, layout)
        for ours, expected in zip(tape.attention(), theirs.attentions, strict=True):
            close(remove_padding(ours.transpose(1, 2), layout), remove_padding(expected.transpose(1, 2), layout))
        for row, length in enumerate(LENGTHS):
            alone = one.ours(tokens[row : row + 1, :length])
            close(padded[row, :length], alone[0])
            close(alone[0], run(one, tokens[row : row + 1, :length], Padded()).hidden_states[-1][0])


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in ENCODERS if name.startswith(("bert", "electra", "albert", "xlm", "nomic"))),
        *("roberta-relu", "deberta-v2-conv", "gte", "jina-bert"),
    ],
)
def test_segment_embeddings(pair: Pairs, name: str) -> None:
    one = pair(name)
    tokens, layout = batch_for(one)
    segments = torch.randint(
        one.theirs.config.type_vocab_size, tokens.shape, generator=torch.Generator().manual_seed(2)
    )
    expected = remove_padding(run(one, tokens, layout, token_type_ids=segments).hidden_states[-1], layout)
    with torch.no_grad():
        padded = remove_padding(one.ours(tokens, layout, segments), layout)
        packed = one.ours(
            remove_padding(tokens, layout), Packed.from_lengths(LENGTHS), remove_padding(segments, layout)
        )
        without = remove_padding(one.ours(tokens, layout), layout)
    close(padded, expected)
    close(packed, expected)
    assert not torch.allclose(without, expected, atol=1e-2)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("bert", "prediction_logits"),
        ("bert-masked", "logits"),
        ("distilbert", "logits"),
        ("roberta", "logits"),
        ("roberta-relu", "logits"),
        ("xlm-roberta", "logits"),
        ("camembert", "logits"),
        ("mpnet", "logits"),
        ("electra-masked", "logits"),
        ("electra-small", "logits"),
        ("albert", "prediction_logits"),
        ("albert-masked", "logits"),
        ("nomic-bert", "logits"),
        ("gte", "logits"),
        ("jina-bert", "logits"),
        ("eurobert", "logits"),
        ("modernbert", "logits"),
        ("modernbert-untied", "logits"),
        ("deberta-v2", "logits"),
        ("deberta-v2-conv", "logits"),
    ],
)
def test_masked_head(pair: Pairs, name: str, field: str) -> None:
    one = pair(name)
    tokens, layout = batch_for(one)
    with torch.no_grad():
        hidden = one.ours(tokens, layout)
        ours = one.ours.mlm_head(hidden)
        some = one.ours.mlm_head(remove_padding(hidden, layout)[3:5])
    expected = remove_padding(run(one, tokens, layout)[field], layout)
    close(remove_padding(ours, layout), expected)
    close(some, expected[3:5])


def test_replaced_token_head(pair: Pairs) -> None:
    one = pair("electra")
    tokens, layout = batch_for(one)
    with torch.no_grad():
        ours = one.ours.discriminator(one.ours(tokens, layout))
    close(remove_padding(ours, layout), remove_padding(run(one, tokens, layout).logits, layout))


@pytest.mark.parametrize(
    "name",
    [
        *("bert", "bert-bare", "bert-next", "roberta-bare", "xlm-roberta-bare", "mpnet-bare", "albert-bare"),
        "albert",
    ],
)
def test_pooler_and_next_sentence(pair: Pairs, name: str) -> None:
    one = pair(name)
    tokens, layout = batch_for(one)
    theirs = run(one, tokens, layout)
    with torch.no_grad():
        pooled = one.ours.pooler(one.ours(tokens, layout), layout)
        packed = Packed.from_lengths(LENGTHS)
        close(one.ours.pooler(one.ours(remove_padding(tokens, layout), packed), packed), pooled)
        if one.ours.nsp_head is not None:
            names = {"bert": "seq_relationship_logits", "albert": "sop_logits"}
            expected = theirs[names.get(name, "logits")]
            close(one.ours.nsp_head(pooled), expected)
        else:
            close(pooled, theirs.pooler_output)


@pytest.mark.parametrize("name", BASIC)
def test_maximum_length(pair: Pairs, name: str) -> None:
    one = pair(name)
    longest = one.ours.config.max_position_embeddings
    offset = 2 * (name in ("roberta", "xlm-roberta", "camembert", "mpnet"))
    assert longest == one.theirs.config.max_position_embeddings - offset
    tokens = torch.arange(longest)[None] % 40 + 5
    with torch.no_grad():
        close(one.ours(tokens), run(one, tokens, Padded()).hidden_states[-1])


@pytest.mark.parametrize("name", BASIC)
def test_bfloat16_is_close(pair: Pairs, name: str) -> None:
    one = pair(name)
    tokens, layout = batch_for(one)
    half, _ = regard.load(one.folder, dtype=torch.bfloat16)
    with torch.no_grad():
        ours = half(tokens, layout)
        assert ours.dtype == torch.bfloat16
        close(remove_padding(ours.float(), layout), remove_padding(one.ours(tokens, layout), layout), 0.1)
