"""The highest numbers of a row in pieces: what `topk` finds."""

from __future__ import annotations

import pytest
import torch

from regard.inference.generation.beam_search import CHUNK, chunked_top_k


@pytest.mark.parametrize("size", [5, 256, 1024, 2048 + 7, 5000])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_it_is_topk(size: int, count: int) -> None:
    numbers = torch.randn(6, size)
    values, places = chunked_top_k(numbers, count)
    expected = numbers.topk(count)
    assert torch.equal(values, expected.values) and torch.equal(places, expected.indices)


def test_all_may_lie_in_the_rest_or_in_one_piece() -> None:
    numbers = torch.zeros(2, 4000)
    numbers[0, -4:], numbers[1, 300:304] = torch.arange(1.0, 5.0), torch.arange(1.0, 5.0)
    assert chunked_top_k(numbers, 3)[1].tolist() == [[3999, 3998, 3997], [303, 302, 301]]


def test_of_equals_the_first() -> None:
    numbers = torch.zeros(1, 4000)
    numbers[0, [700, 701, 2000, 3990]] = 1.0
    assert chunked_top_k(numbers, 1)[1].item() == 700
    numbers[0, [700, 701, 2000]] = 0.0
    assert chunked_top_k(numbers, 1)[1].item() == 3990


def test_nan_is_highest() -> None:
    numbers = torch.zeros(1, 4000)
    numbers[0, 1234] = torch.nan
    assert chunked_top_k(numbers, 1)[0].isnan().all() and chunked_top_k(numbers, 4)[0].isnan().any()
    assert CHUNK < 4000 // 4
