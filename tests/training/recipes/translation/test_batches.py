"""Batches of pairs: every pair once, within the budget, the same for the same seed."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.training.recipes.translation.recipe import EncodedPair, collate_pairs, group_by_length

side = st.lists(st.integers(1, 9), min_size=1, max_size=12)
pairs = st.lists(st.builds(EncodedPair, side, side), min_size=1, max_size=40)


@given(pairs=pairs, budget=st.integers(1, 60), seed=st.integers(0, 3))
def test_every_pair_is_in_one_batch_within_the_budget(pairs: list[EncodedPair], budget: int, seed: int) -> None:
    epochs = [group_by_length(pairs, tokens_per_batch=budget, seed=seed, epoch=epoch) for epoch in range(3)]
    for batches in epochs:
        assert sorted(index for batch in batches for index in batch) == list(range(len(pairs)))
        for batch in batches:
            assert len(batch) == 1 or len(batch) * max(pairs[index].length for index in batch) <= budget
    assert len({len(batches) for batches in epochs}) == 1
    assert epochs[1] == group_by_length(pairs, tokens_per_batch=budget, seed=seed, epoch=1)


def test_epochs_and_seeds_differ_and_similar_lengths_are_grouped() -> None:
    pairs = [EncodedPair([1] * (1 + number % 10), [1] * (1 + number % 7)) for number in range(200)]
    orders = [
        group_by_length(pairs, tokens_per_batch=40, seed=seed, epoch=epoch) for seed in range(2) for epoch in range(3)
    ]
    assert len({str(order) for order in orders}) == 6
    assert {frozenset(batch) for batch in orders[0]} != {frozenset(batch) for batch in orders[1]}
    waste = sum(len(b) * max(pairs[p].length for p in b) - sum(pairs[p].length for p in b) for b in orders[0])
    assert waste < 0.1 * sum(pair.length for pair in pairs)


def test_a_batch_is_padded_on_the_right() -> None:
    batch = collate_pairs([EncodedPair([5, 6, 2], [7, 2]), EncodedPair([8, 2], [9, 9, 9, 2])], padding=3)
    assert batch.source.tolist() == [[5, 6, 2], [8, 2, 0]]
    assert batch.layout.mask is not None and batch.layout.mask.tolist() == [[True, True, True], [True, True, False]]
    assert batch.target.tolist() == [[7, 2, 3, 3], [9, 9, 9, 2]]
    assert batch.to(torch.device("cpu")).source.equal(batch.source)
