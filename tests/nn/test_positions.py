"""Positional encodings against the published formulas, and five criteria for positional encodings."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.nn.embedding import Arrangement, LearnedPositions, RelativePositionBias, SinusoidalPositions, sinusoids

WIDTHS = st.sampled_from([16, 64, 128, 512])
POSITIONS = st.integers(0, 10_000)
quick = settings(max_examples=40, deadline=None)


def vector(position: int, width: int) -> Tensor:
    return sinusoids(torch.tensor([position]), width)[0].double()


def formula(position: int, width: int) -> Tensor:
    """p_t^(2k) = sin(w_k t), p_t^(2k+1) = cos(w_k t), w_k = 1 / 10000^(2k/d), k from 0 so that w_0 = 1."""
    values = []
    for k in range(width // 2):
        rate = 1 / 10000 ** (2 * k / width)
        values += [math.sin(rate * position), math.cos(rate * position)]
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("position", [0, 1, 2, 49, 511, 2_000, 10_000])
@pytest.mark.parametrize("width", [2, 64, 512])
def test_sinusoids_follow_the_formula(device: torch.device, position: int, width: int) -> None:
    got = sinusoids(torch.tensor([position], device=device), width)[0].cpu().double()
    torch.testing.assert_close(got, formula(position, width), atol=1e-5, rtol=0)


def test_first_frequency_is_one() -> None:
    assert vector(3, 8)[0].item() == pytest.approx(math.sin(3), abs=1e-6)
    assert vector(3, 8)[1].item() == pytest.approx(math.cos(3), abs=1e-6)


@quick
@given(WIDTHS, POSITIONS, POSITIONS)
def test_criterion_1_vectors_are_unique(width: int, one: int, other: int) -> None:
    distance = (vector(one, width) - vector(other, width)).norm().item()
    assert distance == 0 if one == other else distance > 1e-2


@quick
@given(WIDTHS, st.integers(0, 5_000), st.integers(0, 5_000), st.integers(0, 200))
def test_criterion_2_distance_does_not_depend_on_the_position(width: int, one: int, other: int, apart: int) -> None:
    here, there = (vector(one, width), vector(one + apart, width)), (vector(other, width), vector(other + apart, width))
    assert (here[0] - here[1]).norm().item() == pytest.approx((there[0] - there[1]).norm().item(), abs=1e-4)
    expected = sum(math.cos(apart / 10000 ** (2 * k / width)) for k in range(width // 2))
    assert (here[0] @ here[1]).item() == pytest.approx(expected, abs=1e-3)
    assert (there[0] @ there[1]).item() == pytest.approx(expected, abs=1e-3)


@quick
@given(WIDTHS, st.integers(1, 100), st.integers(1, 5_000))
def test_criterion_3_generalizes_to_longer_sequences(width: int, short: int, more: int) -> None:
    """A longer sequence begins with the same vectors, and a shift is the same linear map at every length."""
    module = SinusoidalPositions(width)
    assert torch.equal(module(torch.arange(short + more))[:short], module(torch.arange(short)))
    rates = torch.tensor([1 / 10000 ** (2 * k / width) for k in range(width // 2)], dtype=torch.float64)
    sine, cosine = vector(more, width).unflatten(0, (-1, 2)).unbind(-1)
    shifted = torch.stack(
        [
            sine * torch.cos(rates * short) + cosine * torch.sin(rates * short),
            cosine * torch.cos(rates * short) - sine * torch.sin(rates * short),
        ],
        dim=-1,
    ).flatten()
    torch.testing.assert_close(vector(more + short, width), shifted, atol=1e-5, rtol=0)


@quick
@given(WIDTHS, st.integers(0, 1_000_000))
def test_criterion_4_bounded(width: int, position: int) -> None:
    p = vector(position, width)
    assert p.abs().max() <= 1
    assert p.norm().item() == pytest.approx(math.sqrt(width / 2), rel=1e-5)


def test_criterion_5_deterministic() -> None:
    module, positions = SinusoidalPositions(32), torch.arange(40)
    assert not list(module.parameters()) and not list(module.buffers())
    before = torch.get_rng_state()
    one, other = module.train()(positions), SinusoidalPositions(32).eval()(positions)
    assert torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("width", [2, 64, 512])
def test_halves_and_interleaved_are_equal_up_to_a_permutation(width: int) -> None:
    positions = torch.arange(50)
    halves, interleaved = sinusoids(positions, width, arrangement="halves"), sinusoids(positions, width)
    assert torch.equal(halves[:, : width // 2], interleaved[:, 0::2])
    assert torch.equal(halves[:, width // 2 :], interleaved[:, 1::2])
    assert width == 2 or not torch.equal(halves, interleaved)


@pytest.mark.parametrize("arrangement", ["interleaved", "halves"])
def test_positions_of_any_shape(arrangement: Arrangement) -> None:
    positions = torch.tensor([[0, 5, 2], [9, 1, 1]])
    rows = SinusoidalPositions(8, arrangement=arrangement)(positions)
    assert rows.shape == (2, 3, 8)
    assert torch.equal(rows[1, 0], sinusoids(torch.tensor([9]), 8, arrangement=arrangement)[0])


def test_odd_width_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"even width .* got 7"):
        sinusoids(torch.arange(3), 7)


def test_learned_positions_apply_their_offset(device: torch.device) -> None:
    module = LearnedPositions(5, 4, offset=2).to(device)
    assert module.weight.shape == (7, 4)
    assert torch.equal(module(torch.tensor([0, 4], device=device)), module.weight[[2, 6]])


def published_bucket(distance: int, *, buckets: int, max_distance: int, causal: bool) -> int:
    """T5's bucket of one distance; `distance` is key minus query."""
    first = 0
    if causal:
        size = -distance if distance < 0 else 0
    else:
        buckets //= 2
        if distance > 0:
            first = buckets
        size = abs(distance)
    if size < buckets // 2:
        return first + size
    share = math.log(size / (buckets // 2)) / math.log(max_distance / (buckets // 2))
    return first + min(buckets - 1, buckets // 2 + int(share * (buckets - buckets // 2)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 16), (16, 64), (32, 20)])
def test_buckets_follow_the_published_rule(device: torch.device, causal: bool, buckets: int, max_distance: int) -> None:
    module = RelativePositionBias(2, buckets=buckets, max_distance=max_distance, causal=causal)
    distances = range(-300, 301)
    expected = [published_bucket(d, buckets=buckets, max_distance=max_distance, causal=causal) for d in distances]
    assert module.bucket(torch.tensor(list(distances), device=device)).tolist() == expected
    assert min(expected) >= 0 and max(expected) == buckets - 1


@pytest.mark.parametrize("causal", [False, True])
def test_relative_bias_is_the_table_at_the_distance(device: torch.device, causal: bool) -> None:
    module = RelativePositionBias(3, buckets=8, max_distance=16, causal=causal).to(device)
    queries, keys = 2, 7
    bias = module(queries, keys)
    assert bias.shape == (1, 3, queries, keys)
    for t in range(queries):
        for s in range(keys):
            bucket = published_bucket(s - (keys - queries + t), buckets=8, max_distance=16, causal=causal)
            assert torch.equal(bias[0, :, t, s], module.table.weight[bucket])


def test_relative_bias_of_the_last_queries_equals_the_end_of_the_full_bias() -> None:
    module = RelativePositionBias(2, buckets=8, max_distance=16, causal=True)
    assert torch.equal(module(2, 6), module(6, 6)[:, :, -2:])
