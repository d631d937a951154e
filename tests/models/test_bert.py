"""BERT, DistilBERT and RoBERTa: embeddings, heads, and batches in any layout."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from regard.models import Bert, BertConfig
from regard.nn.masks import Packed, Padded

CONFIG = BertConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=10,
    dropout=0.0,
    attention_dropout=0.0,
)
KIN = {
    "bert": CONFIG,
    "distilbert": replace(CONFIG, family="distilbert", type_vocab_size=0),
    "roberta": replace(CONFIG, family="roberta", type_vocab_size=1, position_offset=2),
}
Make = Callable[..., Any]


@pytest.mark.parametrize("name", KIN)
def test_hidden_states_do_not_depend_on_the_batch(
    device: torch.device, randomized: Make, check_batch_invariance: Make, texts: Make, name: str
) -> None:
    model = randomized(Bert(KIN[name])).to(device).eval()
    check_batch_invariance(lambda side: model(*side), texts(device))


def test_head_outputs_do_not_depend_on_the_batch(
    device: torch.device, randomized: Make, check_batch_invariance: Make, texts: Make
) -> None:
    model = randomized(Bert(CONFIG)).to(device).eval()
    check_batch_invariance(lambda side: model.mlm_head(model(*side)), texts(device), trials=20)
    check_batch_invariance(
        lambda side: model.nsp_head(model.pooler(model(*side), side[1])), texts(device), trials=20, whole=True
    )


def test_base_model_matches_the_paper() -> None:
    config = BertConfig()
    assert (
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
        config.intermediate_size,
        config.max_position_embeddings,
    ) == (12, 768, 12, 3072, 512)
    with torch.device("meta"):
        model = Bert(config)
    trunk = sum(p.numel() for part in (model.embedding, model.encoder, model.pooler) for p in part.parameters())
    assert trunk == 109_482_240  # the published base model with its pooler


@pytest.mark.parametrize("name", KIN)
def test_embeddings_are_token_plus_position_plus_segment(device: torch.device, randomized: Make, name: str) -> None:
    model = randomized(Bert(KIN[name])).to(device)
    ids, segments = torch.randint(20, (2, 5), device=device), torch.tensor([[0, 0, 0, 1, 1]] * 2, device=device)
    embedding, offset = model.embedding, KIN[name].position_offset
    segments = segments if name == "bert" else None
    total = embedding.tokens.weight[ids] + embedding.positions.weight[offset : offset + 5]
    if embedding.segments is not None:
        total = total + embedding.segments.weight[torch.zeros_like(ids) if segments is None else segments]
    states = list(model.states(ids, None, segments))
    torch.testing.assert_close(states[0], embedding.norm(total), atol=1e-6, rtol=1e-6)
    assert len(states) == 3 and torch.equal(states[-1], model(ids, None, segments))


def test_segments_of_a_packed_batch(device: torch.device, randomized: Make) -> None:
    model = randomized(Bert(CONFIG)).to(device).eval()
    lengths = [4, 2, 5]
    ids, segments = torch.randint(20, (11,), device=device), torch.randint(2, (11,), device=device)
    got = model(ids, Packed.from_lengths(lengths, device=device), segments).split(lengths)
    for piece, text, kinds in zip(got, ids.split(lengths), segments.split(lengths), strict=True):
        torch.testing.assert_close(piece, model(text[None], None, kinds[None])[0], atol=1e-5, rtol=1e-5)


def test_the_masked_head_multiplies_by_the_embedding_matrix(device: torch.device, randomized: Make) -> None:
    model = randomized(Bert(CONFIG)).to(device)
    hidden, head = torch.randn(2, 3, 8, device=device), model.mlm_head
    inner = F.layer_norm(F.gelu(head.linear(hidden)), (8,), head.norm.weight, head.norm.bias, 1e-12)
    expected = inner @ model.embedding.tokens.weight.T + head.bias
    torch.testing.assert_close(head(hidden), expected, atol=1e-5, rtol=1e-5)
    rows = torch.tensor([[True, False, True], [False, False, True]], device=device)
    torch.testing.assert_close(head(hidden[rows]), expected[rows], atol=1e-5, rtol=1e-5)


def test_the_matrix_is_tied_and_belongs_to_the_embedding(device: torch.device, randomized: Make) -> None:
    model = randomized(Bert(CONFIG)).to(device)
    assert [name for name, p in model.named_parameters() if p.shape == (20, 8)] == ["embedding.tokens.weight"]
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.embedding.tokens.weight.zero_()
    hidden = torch.randn(2, 8, device=device)
    torch.testing.assert_close(twin.mlm_head(hidden), twin.mlm_head.bias.expand(2, -1))
    assert model.mlm_head(hidden).abs().max() > twin.mlm_head(hidden).abs().max()
    with torch.device("meta"):
        empty = Bert(CONFIG)
    empty.to_empty(device=device)
    empty.load_state_dict(model.state_dict())
    torch.testing.assert_close(empty.mlm_head(hidden), model.mlm_head(hidden))


def test_pooler_and_next_sentence(device: torch.device, randomized: Make) -> None:
    model = randomized(Bert(CONFIG)).to(device)
    ids, layout = torch.randint(20, (2, 4), device=device), Padded.from_lengths([4, 3], device=device)
    hidden = model(ids, layout)
    pooled = model.pooler(hidden, layout)
    expected = torch.tanh(hidden[:, 0] @ model.pooler.linear.weight.T + model.pooler.linear.bias)
    torch.testing.assert_close(pooled, expected, atol=1e-6, rtol=1e-6)
    assert model.nsp_head(pooled).shape == (2, 2)


def test_only_requested_heads_exist() -> None:
    bare, some = Bert(CONFIG, output_heads=()), Bert(CONFIG, output_heads=("mlm_head",))
    assert (bare.pooler, bare.mlm_head, bare.nsp_head) == (None, None, None)
    assert some.pooler is None and some.mlm_head is not None and some.nsp_head is None


def test_attention_is_bidirectional(device: torch.device, randomized: Make) -> None:
    model = randomized(Bert(CONFIG)).to(device).eval()
    ids = torch.randint(1, 10, (1, 5), device=device)
    for changed in (0, 4):
        other = ids.clone()
        other[0, changed] = 15
        assert (model(other) - model(ids)).abs().amax(-1).min() > 1e-4


def test_gradients_reach_all_parameters(device: torch.device, randomized: Make) -> None:
    model = randomized(Bert(CONFIG)).to(device)
    ids, layout = torch.randint(20, (2, 10), device=device), Padded()
    segments = torch.tensor([[0] * 5 + [1] * 5] * 2, device=device)
    hidden = model(ids, layout, segments)
    (model.mlm_head(hidden).pow(2).sum() + model.nsp_head(model.pooler(hidden, layout)).pow(2).sum()).backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not missing


@pytest.mark.parametrize("layout", [Padded(), Packed.from_lengths([5, 5])], ids=["padded", "packed"])
def test_selected_rows_equal_the_full_output(randomized: Make, layout: Any) -> None:
    model = randomized(Bert(CONFIG))
    shape = (10,) if isinstance(layout, Packed) else (2, 5)
    ids, segments, rows = torch.randint(20, shape), torch.randint(2, shape), torch.tensor([8, 0, 4, 5, 0])
    gradients = []
    for some in (
        model(ids, layout, segments, output_positions=rows),
        model(ids, layout, segments).reshape(10, 8)[rows],
    ):
        assert some.shape == (5, 8)
        gradients.append([some, *torch.autograd.grad(some.pow(3).sum(), list(model.encoder.parameters()))])
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


def test_empty_row_selection(randomized: Make) -> None:
    model = randomized(Bert(CONFIG))
    assert model(torch.randint(20, (2, 5)), output_positions=torch.tensor([], dtype=torch.long)).shape == (0, 8)


def test_autocast_gives_half_precision_states_and_full_precision_weights(
    device: torch.device, randomized: Make
) -> None:
    model = randomized(Bert(CONFIG)).to(device)
    ids = torch.randint(20, (2, 5), device=device)
    assert {state.dtype for state in model.states(ids)} == {torch.float32}
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert {state.dtype for state in model.states(ids)} == {torch.bfloat16}
        model.mlm_head(model(ids)).float().sum().backward()
    assert {parameter.grad.dtype for parameter in model.encoder.parameters()} == {torch.float32}
