"""Candidates: equal to hand-computed probabilities and to the sampling filters."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.inference.generation.sampling import Sampling
from regard.interpret.generation import CandidateTokens, candidate_tokens

LOGITS = torch.tensor([math.log(p) for p in (0.1, 0.5, 0.05, 0.3, 0.05)])


def spell(token: int) -> str:
    return "abcde"[token % 5]


def find_candidates(
    sampling: Sampling, *, chosen: int | None = None, top: int = 15, occurred: set[int] | None = None
) -> CandidateTokens:
    used = torch.tensor([[token in (occurred or set()) for token in range(len(LOGITS))]])
    stages = [(name, scores[0]) for name, scores in sampling.stages(LOGITS[None], used)]
    return candidate_tokens(LOGITS, stages, spell=spell, chosen=chosen, top=top)


def test_nucleus_of_a_hand_computed_example() -> None:
    found = find_candidates(Sampling(top_p=0.75), chosen=3)
    assert [one.text for one in found.candidates] == ["b", "d", "a", "c", "e"]  # ties are ordered by id
    assert [one.probability for one in found.candidates] == pytest.approx([0.5, 0.3, 0.1, 0.05, 0.05])
    assert [one.cumulative_probability for one in found.candidates] == pytest.approx([0.5, 0.8, 0.9, 0.95, 1.0])
    assert [one.sampling_probability for one in found.candidates] == pytest.approx([0.625, 0.375, 0, 0, 0])
    assert [one.removed_by for one in found.candidates] == [None, None, "top_p", "top_p", "top_p"]
    assert (found.nucleus_size, found.vocab_size) == (2, 5) and found.nucleus_probability == pytest.approx(0.8)


def test_temperature_sharpens_the_distribution() -> None:
    found = find_candidates(Sampling(temperature=0.5))
    squares = [0.25, 0.09, 0.01, 0.0025, 0.0025]
    assert [one.scaled_probability for one in found.candidates] == pytest.approx(
        [one / sum(squares) for one in squares]
    )
    assert [one.probability for one in found.candidates] == pytest.approx([0.5, 0.3, 0.1, 0.05, 0.05])
    assert found.nucleus_size == 5 and found.nucleus_probability == pytest.approx(1)


def test_temperature_0_keeps_only_the_likeliest_token() -> None:
    found = find_candidates(Sampling(temperature=0.0))
    assert [one.text for one in found.candidates] == ["b", "d", "a", "c", "e"]
    assert [one.scaled_probability for one in found.candidates] == [1, 0, 0, 0, 0]
    assert [one.removed_by for one in found.candidates] == [None, *["temperature"] * 4] and found.nucleus_size == 1


def test_top_p_applies_after_top_k() -> None:
    found = find_candidates(Sampling(top_k=3, top_p=0.6))
    assert [one.cumulative_probability for one in found.candidates[:3]] == pytest.approx([0.5 / 0.9, 0.8 / 0.9, 1.0])
    assert [one.cumulative_probability for one in found.candidates[3:]] == [None, None]
    assert [one.removed_by for one in found.candidates] == [None, None, "top_p", "top_k", "top_k"]
    assert [one.scaled_probability for one in found.candidates] == pytest.approx([0.5, 0.3, 0.1, 0.05, 0.05])
    assert found.nucleus_probability == pytest.approx(0.8)


def test_the_repetition_penalty_makes_used_tokens_less_likely() -> None:
    found = find_candidates(Sampling(repetition_penalty=2.0), occurred={1})  # log 0.5 becomes log 0.25
    assert [one.text for one in found.candidates][:2] == ["d", "b"]
    assert found.candidates[1].scaled_probability == pytest.approx(0.25 / 0.75) and found.candidates[
        1
    ].probability == pytest.approx(0.5)


def test_the_chosen_token_is_listed_if_it_is_not_among_the_likeliest() -> None:
    found = find_candidates(Sampling(), chosen=4, top=2)
    assert [one.text for one in found.candidates] == ["b", "d", "e"] and found.candidates[
        2
    ].cumulative_probability == pytest.approx(1.0)
    assert len(find_candidates(Sampling(), chosen=1, top=2).candidates) == 2


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(-8, 8), min_size=2, max_size=30),
    st.floats(0.05, 2),
    st.floats(0.05, 1),
    st.integers(1, 30),
    st.floats(0, 1),
)
def test_candidates_agree_with_the_sampler(
    logits: list[float], temperature: float, top_p: float, top_k: int, min_p: float
) -> None:
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p)
    scores = torch.tensor(logits)
    stages = [(name, one[0]) for name, one in sampling.stages(scores[None])]
    found = candidate_tokens(scores, stages, spell=str, top=30)
    probabilities = sampling.filtered(scores[None])[0].softmax(-1)
    assert sorted(one.token for one in found.candidates) == list(range(len(logits)))
    for one in found.candidates:
        assert one.sampling_probability == pytest.approx(float(probabilities[one.token])) and (
            one.removed_by is None
        ) == (one.sampling_probability > 0)
    assert found.nucleus_size == sum(one.sampling_probability > 0 for one in found.candidates)
    assert found.nucleus_probability == pytest.approx(
        sum(one.scaled_probability for one in found.candidates if one.removed_by is None)
    )
    scaled = [one.scaled_probability for one in found.candidates]
    assert all(after <= before + 1e-12 for before, after in pairwise(scaled))
    assert sum(scaled) == pytest.approx(1)


def test_the_tail_holds_every_other_token() -> None:
    logits = torch.randn(3000, generator=torch.Generator().manual_seed(0)) * 3
    found = candidate_tokens(logits, [], spell=str, top=10)
    assert sum(count for count, _ in found.tail) == 3000 - 10
    mass = sum(one.probability for one in found.candidates) + sum(count * math.exp(mean) for count, mean in found.tail)
    assert mass == pytest.approx(1, abs=1e-3)
    for temperature in (0.5, 1.7):  # the partition function at another temperature
        exact = float((logits.double().log_softmax(-1) / temperature).exp().sum())
        listed = sum(one.probability ** (1 / temperature) for one in found.candidates)
        binned = sum(count * math.exp(mean / temperature) for count, mean in found.tail)
        assert listed + binned == pytest.approx(exact, rel=0.005)
