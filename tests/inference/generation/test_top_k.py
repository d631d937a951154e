"""`chunked_top_k` finds what `torch.topk` finds."""

from __future__ import annotations

import pytest
import torch

from regard.inference.generation.beam_search import CHUNK, chunked_top_k


@pytest.mark.parametrize("size", [5, 256, 1024, 2048 + 7, 5000])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_it_equals_topk(size: int, count: int) -> None:
    logits = torch.randn(6, size)
    values, indices_found = chunked_top_k(logits, count)
    expected = logits.topk(count)
    assert torch.equal(values, expected.values) and torch.equal(indices_found, expected.indices)


def test_all_values_may_lie_in_the_remainder_or_in_one_chunk() -> None:
    logits = torch.zeros(2, 4000)
    logits[0, -4:], logits[1, 300:304] = torch.arange(1.0, 5.0), torch.arange(1.0, 5.0)
    assert chunked_top_k(logits, 3)[1].tolist() == [[3999, 3998, 3997], [303, 302, 301]]


def test_ties_are_ordered_by_index() -> None:
    logits = torch.zeros(1, 4000)
    logits[0, [700, 701, 2000, 3990]] = 1.0
    assert chunked_top_k(logits, 1)[1].item() == 700
    logits[0, [700, 701, 2000]] = 0.0
    assert chunked_top_k(logits, 1)[1].item() == 3990


def test_nan_is_highest() -> None:
    logits = torch.zeros(1, 4000)
    logits[0, 1234] = torch.nan
    assert chunked_top_k(logits, 1)[0].isnan().all() and chunked_top_k(logits, 4)[0].isnan().any()
    assert CHUNK < 4000 // 4
