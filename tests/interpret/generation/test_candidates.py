"""Bars against numbers worked out by hand, and against the filters themselves."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.inference.generation import Sampling
from regard.interpret.generation import CandidateTokens, candidate_tokens

LOGITS = torch.tensor([math.log(share) for share in (0.1, 0.5, 0.05, 0.3, 0.05)])


def spell(token: int) -> str:
    return "abcde"[token % 5]


def bars(
    sampling: Sampling, *, chosen: int | None = None, top: int = 15, said: set[int] | None = None
) -> CandidateTokens:
    heard = torch.tensor([[token in (said or set()) for token in range(len(LOGITS))]])
    stages = [(name, numbers[0]) for name, numbers in sampling.stages(LOGITS[None], heard)]
    return candidate_tokens(LOGITS, stages, spell=spell, chosen=chosen, top=top)


def test_the_nucleus_by_hand() -> None:
    found = bars(Sampling(top_p=0.75), chosen=3)
    assert [one.text for one in found.bars] == ["b", "d", "a", "c", "e"]  # of equals the lower id first
    assert [one.probability for one in found.bars] == pytest.approx([0.5, 0.3, 0.1, 0.05, 0.05])
    assert [one.reached for one in found.bars] == pytest.approx([0.5, 0.8, 0.9, 0.95, 1.0])
    assert [one.chance for one in found.bars] == pytest.approx([0.625, 0.375, 0, 0, 0])
    assert [one.by for one in found.bars] == [None, None, "top_p", "top_p", "top_p"]
    assert (found.kept, found.vocabulary, found.chosen) == (2, 5, 3) and found.share == pytest.approx(0.8)


def test_temperature_makes_it_sharper() -> None:
    found = bars(Sampling(temperature=0.5))
    squares = [0.25, 0.09, 0.01, 0.0025, 0.0025]
    assert [one.tempered for one in found.bars] == pytest.approx([one / sum(squares) for one in squares])
    assert [one.probability for one in found.bars] == pytest.approx([0.5, 0.3, 0.1, 0.05, 0.05])
    assert found.kept == 5 and found.share == pytest.approx(1)


def test_temperature_0_leaves_the_likeliest() -> None:
    found = bars(Sampling(temperature=0.0))
    assert [one.text for one in found.bars] == ["b", "d", "a", "c", "e"]
    assert [one.tempered for one in found.bars] == [1, 0, 0, 0, 0]
    assert [one.by for one in found.bars] == [None, *["temperature"] * 4] and found.kept == 1


def test_top_p_chooses_from_what_top_k_left() -> None:
    found = bars(Sampling(top_k=3, top_p=0.6))
    assert [one.reached for one in found.bars[:3]] == pytest.approx([0.5 / 0.9, 0.8 / 0.9, 1.0])
    assert [one.reached for one in found.bars[3:]] == [None, None]
    assert [one.by for one in found.bars] == [None, None, "top_p", "top_k", "top_k"]
    assert [one.tempered for one in found.bars] == pytest.approx([0.5, 0.3, 0.1, 0.05, 0.05])
    assert found.share == pytest.approx(0.8)


def test_what_was_said_is_less_likely() -> None:
    found = bars(Sampling(repetition_penalty=2.0), said={1})  # log 0.5 becomes log 0.25
    assert [one.text for one in found.bars][:2] == ["d", "b"]
    assert found.bars[1].tempered == pytest.approx(0.25 / 0.75) and found.bars[1].probability == pytest.approx(0.5)


def test_what_was_said_is_listed_though_it_is_not_among_the_likeliest() -> None:
    found = bars(Sampling(), chosen=4, top=2)
    assert [one.text for one in found.bars] == ["b", "d", "e"] and found.bars[2].reached == pytest.approx(1.0)
    assert len(bars(Sampling(), chosen=1, top=2).bars) == 2


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(-8, 8), min_size=2, max_size=30),
    st.floats(0.05, 2),
    st.floats(0.05, 1),
    st.integers(1, 30),
    st.floats(0, 1),
)
def test_bars_agree_with_the_sampler(
    logits: list[float], temperature: float, top_p: float, top_k: int, min_p: float
) -> None:
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p)
    numbers = torch.tensor(logits)
    stages = [(name, one[0]) for name, one in sampling.stages(numbers[None])]
    found = candidate_tokens(numbers, stages, spell=str, top=30)
    chances = sampling.filtered(numbers[None])[0].softmax(-1)
    assert sorted(one.token for one in found.bars) == list(range(len(logits)))
    for one in found.bars:
        assert one.chance == pytest.approx(float(chances[one.token])) and (one.by is None) == (one.chance > 0)
    assert found.kept == sum(one.chance > 0 for one in found.bars)
    assert found.share == pytest.approx(sum(one.tempered for one in found.bars if one.by is None))
    shares = [one.tempered for one in found.bars]
    assert all(after <= before + 1e-12 for before, after in pairwise(shares))
    assert sum(shares) == pytest.approx(1)
