"""Attention against reference loops: scaled dot product, Luong dot, Luong general, Bahdanau."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.nn.attention import (
    Attention,
    FusedProjection,
    SeparateProjections,
    attention_weights,
    bahdanau,
    luong_dot,
    luong_general,
)
from regard.nn.masks import Context, Packed, Padded

WIDTH, HEADS = 8, 2
Randomise = Callable[..., Any]


def rows(x: Tensor) -> list[list[float]]:
    return [[float(value) for value in row] for row in x.detach()]


def dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def matrix_vector_product(matrix: list[list[float]], x: list[float]) -> list[float]:
    return [dot(row, x) for row in matrix]


def softmax(scores: list[float]) -> list[float]:
    raised = [math.exp(score) for score in scores]
    return [value / sum(raised) for value in raised]


def reference_score(attention: Attention, name: str) -> Callable[[list[float], list[float]], float]:
    """The score of a decoder state s and an encoder state h, as in the lectures."""
    if name == "dot":  # s . h
        return dot
    project: Any = attention.project
    if name == "general":  # s . W_a h
        matrix = rows(project.key.weight)
        return lambda s, h: dot(s, matrix_vector_product(matrix, h))
    joined = rows(torch.cat([project.query.weight, project.key.weight], dim=1))  # v_a . tanh(W_a [s ; h])
    score: Any = attention.score
    (v,) = rows(score.v.weight)
    return lambda s, h: dot(v, [math.tanh(value) for value in matrix_vector_product(joined, s + h)])


def make_attention(name: str) -> Attention:
    makers = {"dot": luong_dot, "general": lambda: luong_general(WIDTH), "additive": lambda: bahdanau(WIDTH, hidden=6)}
    return makers[name]()


@pytest.mark.parametrize("name", ["dot", "general", "additive"])
@pytest.mark.parametrize("masked", [False, True])
def test_recurrent_scores_follow_their_formulas(
    device: torch.device, randomised: Randomise, name: str, masked: bool
) -> None:
    attention = randomised(make_attention(name)).to(device)
    query, values = torch.randn(3, WIDTH, device=device), torch.randn(3, 5, WIDTH, device=device)
    lengths = [5, 2, 1] if masked else [5, 5, 5]
    layout = Padded.from_lengths(lengths, device=device) if masked else Padded()
    context, weights = attention.context(query, values, layout.mask)
    looked = attention(query[:, None], Context(Padded(), values, layout))
    assert context.shape == (3, WIDTH) and weights.shape == (3, 5, 1)
    torch.testing.assert_close(looked[:, 0], context, atol=1e-5, rtol=1e-5)
    score = reference_score(attention, name)
    for b, length in enumerate(lengths):
        (s,), states = rows(query[b : b + 1]), rows(values[b, :length])
        alphas = softmax([score(s, h) for h in states])
        average = [sum(a * h[i] for a, h in zip(alphas, states, strict=True)) for i in range(WIDTH)]
        expected = torch.tensor(alphas + [0.0] * (5 - length))
        torch.testing.assert_close(weights[b, :, 0].cpu(), expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(context[b].cpu(), torch.tensor(average), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(weights.sum(1), torch.ones(3, 1, device=device), atol=1e-6, rtol=0)


def test_luong_dot_has_no_parameters() -> None:
    assert not list(luong_dot().parameters())
    assert [tuple(p.shape) for p in luong_general(4, 6).parameters()] == [(4, 6)]


@pytest.mark.parametrize("maker", [luong_general, bahdanau])
def test_the_memory_may_be_wider_than_the_query(device: torch.device, maker: Callable[..., Attention]) -> None:
    attention = maker(4, 6).to(device)
    context, weights = attention.context(torch.randn(2, 4, device=device), torch.randn(2, 3, 6, device=device))
    assert context.shape == (2, 6) and weights.shape == (2, 3, 1)


@pytest.mark.parametrize("name", ["dot", "general", "additive"])
@pytest.mark.parametrize("size", [1, 4, 9])
def test_attention_is_permutation_invariant(device: torch.device, randomised: Randomise, name: str, size: int) -> None:
    """Permuting the values permutes the weights and does not change the context vector."""
    attention = randomised(make_attention(name)).to(device)
    query, values = torch.randn(2, WIDTH, device=device), torch.randn(2, size, WIDTH, device=device)
    order = torch.randperm(size, device=device)
    context, weights = attention.context(query, values)
    again, moved = attention.context(query, values[:, order])
    torch.testing.assert_close(moved, weights[:, order], atol=1e-6, rtol=0)
    torch.testing.assert_close(again, context, atol=1e-5, rtol=1e-5)


def test_equal_keys_get_equal_weights() -> None:
    query, value = torch.randn(1, WIDTH), torch.randn(1, 1, WIDTH)
    context, weights = luong_dot().context(query, value.expand(1, 4, WIDTH))
    torch.testing.assert_close(weights, torch.full((1, 4, 1), 0.25))
    torch.testing.assert_close(context, value[:, 0])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 1.0])
@pytest.mark.parametrize("packed", [False, True])
def test_multi_head_self_attention_follows_the_formula(
    device: torch.device,
    randomised: Randomise,
    reference_attention: Callable[..., tuple[Tensor, Tensor]],
    causal: bool,
    scale: float | None,
    packed: bool,
) -> None:
    """concat_h softmax(Q_h K_h^T / sqrt(d_k)) V_h, then W^O."""
    attention = Attention(
        FusedProjection(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), heads=HEADS, scale=scale, causal=causal
    ).double()
    randomised(attention).to(device)
    lengths = [4, 2]
    texts = [torch.randn(length, WIDTH, device=device, dtype=torch.float64) for length in lengths]
    if packed:
        got = attention(torch.cat(texts), Packed.from_lengths(lengths, device=device)).split(lengths)
    else:
        rectangle = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=9.0)
        whole = attention(rectangle, Padded.from_lengths(lengths, device=device))
        got = [row[:length] for row, length in zip(whole, lengths, strict=True)]
    weight, bias = attention.project.weight, attention.project.bias
    for text, result in zip(texts, got, strict=True):
        query, key, value = (text @ weight.T + bias).detach().cpu().chunk(3, dim=-1)
        heads = []
        for h in range(HEADS):
            part = slice(h * WIDTH // HEADS, (h + 1) * WIDTH // HEADS)
            factor = 1 / math.sqrt(WIDTH / HEADS) if scale is None else scale
            may = (lambda t, s: s <= t) if causal else (lambda t, s: True)
            heads.append(reference_attention(query[:, part], key[:, part], value[:, part], scale=factor, may=may)[0])
        expected = torch.cat(heads, dim=-1).to(device) @ attention.output.weight.T + attention.output.bias
        torch.testing.assert_close(result, expected, atol=1e-6, rtol=1e-6)


def test_sizes_of_the_lecture() -> None:
    """Width 512 with 8 heads of size 64: scores are divided by 8, and the concatenated heads have width 512."""
    attention = Attention(FusedProjection(512, 512), nn.Linear(512, 512), heads=8)
    x = torch.randn(1, 3, 512)
    query, key, value = (attention._split(p) for p in attention.project(x, x))
    assert query.shape == key.shape == value.shape == (1, 3, 8, 64)
    assert attention.score_scale(query) == 1 / 8
    assert attention(x, Padded()).shape == (1, 3, 512)


def test_separate_and_fused_projections_agree(device: torch.device, randomised: Randomise) -> None:
    fused = Attention(FusedProjection(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), heads=HEADS)
    parts = [nn.Linear(WIDTH, WIDTH) for _ in range(3)]
    separate = Attention(SeparateProjections(*parts), fused.output, heads=HEADS)
    randomised(fused)
    with torch.no_grad():
        for part, weight, bias in zip(parts, fused.project.weight.chunk(3), fused.project.bias.chunk(3), strict=True):
            part.weight.copy_(weight)
            part.bias.copy_(bias)
    x, layout = torch.randn(2, 4, WIDTH, device=device), Padded.from_lengths([4, 3], device=device)
    fused.to(device), separate.to(device)
    torch.testing.assert_close(fused(x, layout), separate(x, layout), atol=1e-5, rtol=1e-5)


def test_mixing_is_stable_and_rows_without_keys_are_zero(device: torch.device) -> None:
    query, key = torch.full((1, 1, 2, 4), 200.0, device=device), torch.full((1, 1, 3, 4), 200.0, device=device)
    mask = torch.tensor([[[[True, True, False], [False, False, False]]]], device=device)
    weights = attention_weights(query, key, scale=1.0, mask=mask)
    assert weights.tolist() == [[[[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]]]
    assert attention_weights(query, key, scale=1.0).sum(-1).tolist() == [[[1.0, 1.0]]]


def test_mismatched_layouts_are_rejected() -> None:
    from regard.nn.cache import KVCache

    attention = Attention(SeparateProjections(nn.Identity(), nn.Identity(), nn.Identity()), nn.Identity())
    x, packed = torch.randn(3, 4), Packed.from_lengths([2, 1])
    with pytest.raises(ValueError, match="packed queries need a packed memory"):
        attention(x, Context(packed, torch.randn(2, 3, 4), Padded()))
    with pytest.raises(ValueError, match="padded queries need a padded memory"):
        attention(torch.randn(2, 3, 4), Context(Padded(), x, packed))
    with pytest.raises(ValueError, match="a cache needs a padded batch"):
        attention(x, Context(packed, cache=KVCache()))
