"""Filters compared with their definitions and with transformers' equivalent processors."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.inference.generation.sampling import Sampling, min_p, repetition_penalty, temperature, top_k, top_p

# Few different values, so that there are many ties.
ROWS = st.lists(st.integers(-6, 6).map(lambda n: n / 2), min_size=1, max_size=12)


def allowed_ids(logits: Tensor) -> list[int]:
    """The token ids of one row that are not filtered out."""
    return (logits[0] > -math.inf).nonzero().flatten().tolist()


def rank_ids(row: list[float]) -> list[int]:
    """Token ids, likeliest first; ties are ordered by id."""
    return sorted(range(len(row)), key=lambda token: (-row[token], token))


@given(ROWS, st.floats(0.001, 1.0))
def test_top_p_matches_its_definition(row: list[float], threshold: float) -> None:
    """The smallest set of likeliest tokens whose probability reaches p, found by trying every size."""
    weights = [math.exp(value) for value in row]
    cumulative = [math.fsum(weights[t] for t in rank_ids(row)[:n]) / math.fsum(weights) for n in range(len(row) + 1)]
    allowed = allowed_ids(top_p(torch.tensor([row]), threshold))
    if threshold == 1:
        assert allowed == list(range(len(row)))
        return
    if min(abs(s - threshold) for s in cumulative) < 1e-12:  # rounding decides here, and either result is correct
        return
    smallest = next(n for n, reached in enumerate(cumulative) if reached >= threshold)
    assert allowed == sorted(rank_ids(row)[:smallest])


def test_top_p_by_hand() -> None:
    logits = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    assert allowed_ids(top_p(logits, 0.39)) == [1]
    assert allowed_ids(top_p(logits, 0.41)) == [1, 3]
    assert allowed_ids(top_p(logits, 0.69)) == [1, 3]
    assert allowed_ids(top_p(logits, 0.71)) == [1, 2, 3]
    assert allowed_ids(top_p(logits, 0.91)) == [0, 1, 2, 3]
    even = torch.zeros(1, 4)  # probabilities of exactly 1/4
    assert allowed_ids(top_p(even, 0.5)) == [0, 1]
    assert allowed_ids(top_p(even, 0.50001)) == [0, 1, 2]
    assert allowed_ids(top_p(even, 1e-9)) == [0]
    assert allowed_ids(top_p(torch.zeros(1, 4096), 0.25)) == list(range(1024))


def test_top_p_of_1_keeps_even_very_unlikely_tokens() -> None:
    assert allowed_ids(top_p(torch.tensor([[0.0, -800.0, 3.0]]), 1.0)) == [0, 1, 2]


@given(ROWS, st.integers(1, 14))
def test_top_k_keeps_exactly_k_tokens(row: list[float], count: int) -> None:
    assert allowed_ids(top_k(torch.tensor([row]), count)) == sorted(rank_ids(row)[:count])


@given(ROWS, st.floats(0.01, 1.0))
def test_min_p_is_relative_to_the_likeliest_token(row: list[float], threshold: float) -> None:
    ratios = [math.exp(value - max(row)) for value in row]
    if min(abs(ratio - threshold) for ratio in ratios) < 1e-12 and threshold != 1:
        return
    assert allowed_ids(min_p(torch.tensor([row]), threshold)) == [
        t for t, ratio in enumerate(ratios) if ratio >= threshold
    ]


def test_temperature() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, -2.0]])
    torch.testing.assert_close(temperature(logits, 0.7).softmax(-1), (logits.double() / 0.7).softmax(-1))
    assert allowed_ids(temperature(logits, 0.0)) == [1]
    cold = temperature(logits, 1e-320).softmax(-1)
    torch.testing.assert_close(cold, torch.tensor([[0.0, 0.5, 0.5, 0.0]], dtype=torch.float64))


def test_rows_are_filtered_independently(device: torch.device) -> None:
    logits, seen = torch.randn(5, 40, device=device), torch.rand(5, 40, device=device) < 0.3
    sampling = Sampling(repetition_penalty=1.4, temperature=0.8, top_k=20, top_p=0.8, min_p=0.02)
    together = sampling.filtered(logits, seen)
    for row in range(5):
        torch.testing.assert_close(together[row], sampling.filtered(logits[row : row + 1], seen[row : row + 1])[0])
    assert together.dtype == torch.float64


PROCESSORS: dict[str, tuple[Any, Sampling]] = {
    "temperature": (transformers.TemperatureLogitsWarper(0.6), Sampling(temperature=0.6)),
    "top-k": (transformers.TopKLogitsWarper(7), Sampling(top_k=7)),
    "top-p": (transformers.TopPLogitsWarper(0.85), Sampling(top_p=0.85)),
    "min-p": (transformers.MinPLogitsWarper(0.1), Sampling(min_p=0.1)),
    "repetition": (transformers.RepetitionPenaltyLogitsProcessor(1.3), Sampling(repetition_penalty=1.3)),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_the_distribution_equals_that_of_transformers(name: str) -> None:
    theirs, sampling = PROCESSORS[name]
    logits, tokens = 3 * torch.randn(6, 50), torch.randint(50, (6, 12))
    seen = torch.zeros(6, 50, dtype=torch.bool).scatter(1, tokens, True)
    ours = sampling.filtered(logits, seen).softmax(-1)
    torch.testing.assert_close(ours.float(), theirs(tokens, logits.clone()).softmax(-1))


def test_all_filters_in_transformers_order() -> None:
    logits, tokens = 3 * torch.randn(6, 50), torch.randint(50, (6, 12))
    seen = torch.zeros(6, 50, dtype=torch.bool).scatter(1, tokens, True)
    theirs = logits.double()
    processors = [
        transformers.RepetitionPenaltyLogitsProcessor(1.3),
        transformers.TemperatureLogitsWarper(1.4),
        transformers.TopKLogitsWarper(15),
        transformers.TopPLogitsWarper(0.9),
        transformers.MinPLogitsWarper(0.05),
    ]
    for processor in processors:
        theirs = processor(tokens, theirs)
    sampling = Sampling(repetition_penalty=1.3, temperature=1.4, top_k=15, top_p=0.9, min_p=0.05)
    torch.testing.assert_close(sampling.filtered(logits, seen).softmax(-1), theirs.softmax(-1))
    names = [name for name, _ in sampling.stages(logits, seen)]
    assert names == ["repetition", "temperature", "top_k", "top_p", "min_p"]


def test_repetition_penalty_lowers_positive_and_negative_logits() -> None:
    seen = torch.tensor([[True, True, False, False]])
    found = repetition_penalty(torch.tensor([[2.0, -2.0, 2.0, -2.0]]), seen, 2.0)
    assert found.tolist() == [[1.0, -4.0, 2.0, -2.0]]


def test_default_settings_do_not_change_the_logits() -> None:
    logits = torch.randn(2, 9)
    assert list(Sampling().stages(logits, torch.ones(2, 9, dtype=torch.bool))) == []
    assert torch.equal(Sampling().filtered(logits), logits.double())
