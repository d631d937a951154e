"""Random samples of texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.errors import InputError
from regard.interpret.embeddings import sample_indices, sampling_note


@given(st.integers(0, 300), st.integers(1, 300), st.integers(0, 50))
def test_a_sample_is_sorted_distinct_and_reproducible(count: int, limit: int, seed: int) -> None:
    indices = sample_indices(count, limit, seed)
    assert indices == sorted(set(indices)) == sample_indices(count, limit, seed)
    assert len(indices) == min(count, limit)
    assert set(indices) <= set(range(count))


def test_seeds_differ_and_omissions_are_reported() -> None:
    assert sample_indices(1000, 10, 1) != sample_indices(1000, 10, 2)
    note = "2,000 of 12,000 texts were sampled at random (seed 7); 10,000 are left out"
    assert sampling_note(12_000, 2_000, 7) == [note]
    assert sampling_note(5, 5, 0) == []
    with pytest.raises(InputError, match="limit is 0"):
        regard.sentence_map(["a", "b"], limit=0)
