"""Batches: every sequence once, at most as many tokens as asked for, similar lengths together."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batch import group_by_token_budget
from regard.engine.batches import MIN_STEP, filler_lengths, packed_batches, to_device
from regard.nn.masks import Packed
from regard.text import TokenIds

ROWS = st.lists(st.lists(st.integers(1, 30_000), min_size=1, max_size=40), max_size=60)


@given(st.lists(st.integers(1, 50), max_size=200), st.integers(1, 120))
def test_plan(lengths: list[int], budget: int) -> None:
    sizes = np.array(lengths, dtype=np.int64)
    batches = group_by_token_budget(sizes, budget)
    assert sorted(index for batch in batches for index in batch.tolist()) == list(range(len(lengths)))
    assert all(sizes[batch].sum() <= budget or len(batch) == 1 for batch in batches)
    ordered = [int(sizes[index]) for batch in batches for index in batch]
    assert ordered == sorted(lengths, reverse=True)


@given(st.lists(ROWS, max_size=5), st.integers(1, 100))
def test_windows_are_one_stream(windows: list[list[list[int]]], budget: int) -> None:
    rows = [row for window in windows for row in window]
    found: dict[int, list[int]] = {}
    for indices, tokens in packed_batches(map(TokenIds.from_lists, windows), budget):
        parts = np.split(tokens.ids, np.cumsum(tokens.lengths)[:-1])
        found |= {int(index): part.tolist() for index, part in zip(indices, parts, strict=True)}
    assert [found[index] for index in range(len(rows))] == rows


def test_only_the_last_batch_is_small() -> None:
    windows = [TokenIds.from_lists([[1] * 10] * count) for count in (3, 7, 2, 9)]
    sizes = [int(tokens.lengths.sum()) for _, tokens in packed_batches(windows, 50)]
    assert sizes == [50, 50, 50, 50, 10]


@pytest.mark.parametrize("lengths", [[1], [3, 9, 2], [64] * 20, [7] * 100])
def test_a_batch_on_a_cpu_has_a_common_size(lengths: list[int]) -> None:
    tokens = TokenIds.from_lists([list(range(1, length + 1)) for length in lengths])
    batch = to_device(tokens, torch.device("cpu"))
    assert isinstance(batch.layout, Packed)
    assert batch.layout.lengths[: len(lengths)] == tuple(lengths)
    assert sum(batch.layout.lengths) == len(batch.ids) == len(batch.layout.position_ids)
    assert len(batch.ids) % MIN_STEP == 0
    assert len(batch.ids) <= 1.25 * sum(lengths) + 8
    assert max(batch.layout.lengths) == max(lengths)
    assert batch.ids[: sum(lengths)].tolist() == tokens.ids.tolist()
    assert batch.layout.position_ids[: lengths[0]].tolist() == list(range(lengths[0]))


@given(st.integers(1, 5000), st.integers(1, 600))
def test_fillers(count: int, longest: int) -> None:
    lengths = filler_lengths(count, longest)
    assert all(0 < length <= longest for length in lengths)
    total = count + sum(lengths)
    assert total % MIN_STEP == 0
    assert bin(total).count("1") <= 4 or total < 128  # few sizes: eight for each power of two
