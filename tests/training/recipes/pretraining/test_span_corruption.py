"""Span corruption: the text can be restored, and the sizes are those of the T5 paper."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.training.recipes.pretraining.span_corruption import SpanCorruption, SpanSizes

END, FIRST = 1, 1000
SENTINELS = list(range(FIRST + 99, FIRST - 1, -1))


def corruption(length: int, *, rate: float = 0.15, span: float = 3.0) -> SpanCorruption:
    return SpanCorruption(SpanSizes.filling(length, rate=rate, span=span), sentinels=SENTINELS, end=END)


def restore(given: list[int], target: list[int]) -> list[int]:
    """Restore the text by replacing each sentinel of the input with its span in the target."""
    spans: dict[int, list[int]] = {}
    for token in target[:-1]:
        if token in SENTINELS:
            spans[token] = []
            current = token
        else:
            spans[current].append(token)
    found: list[int] = []
    for token in given[:-1]:
        found += spans[token] if token in SENTINELS else [token]
    return found


def test_the_sizes_of_the_paper() -> None:
    """512 input tokens hold 568 tokens of text, and targets have 114 tokens as in T5's code plus a final sentinel."""
    sizes = SpanSizes.filling(512, rate=0.15, span=3.0)
    assert (sizes.tokens, sizes.dropped, sizes.spans) == (568, 85, 28)
    assert (sizes.inputs, sizes.targets) == (512, 114 + 1)


@given(
    length=st.integers(8, 80),
    rate=st.floats(0.01, 0.9),
    span=st.floats(1, 10),
    seed=st.integers(0, 1 << 30),
)
def test_nothing_is_lost(length: int, rate: float, span: float, seed: int) -> None:
    corrupt = corruption(length, rate=rate, span=span)
    sizes = corrupt.sizes
    ids = 10 + torch.arange(3 * sizes.tokens).view(3, -1) % 900
    found = corrupt(ids.int(), torch.Generator().manual_seed(seed))
    assert found.inputs.shape == (3, sizes.inputs) and found.targets.shape == (3, sizes.targets)
    assert sizes.inputs <= length
    for row, given_row, target in zip(ids.tolist(), found.inputs.tolist(), found.targets.tolist(), strict=True):
        assert restore(given_row, target) == row
        assert given_row[-1] == target[-1] == END
        # Each sentinel once, in descending order of ids; the target has one more after the last span.
        assert [token for token in given_row if token in SENTINELS] == SENTINELS[: sizes.spans]
        assert [token for token in target if token in SENTINELS] == SENTINELS[: sizes.spans + 1]
        assert target[-2] == SENTINELS[sizes.spans]
        adjacent = pairwise(given_row)
        assert not any(a in SENTINELS and b in SENTINELS for a, b in adjacent), "two spans are one"


def test_every_position_may_be_dropped() -> None:
    """Positions at the ends less often, because a span cannot start before the text; both ends equally."""
    corrupt = corruption(16, rate=0.3, span=2.0)
    sizes = corrupt.sizes
    rows = 20_000
    ids = torch.arange(10, 10 + sizes.tokens).expand(rows, -1)
    found = corrupt(ids, torch.Generator().manual_seed(0))
    counts = Counter(found.targets.flatten().tolist())
    frequencies = [counts[10 + position] / rows for position in range(sizes.tokens)]
    mean = sizes.dropped / sizes.tokens
    assert sum(frequencies) == pytest.approx(sizes.dropped)
    assert frequencies[0] > 0.4 * mean and max(frequencies) < 1.3 * mean
    assert frequencies == pytest.approx(frequencies[::-1], abs=0.02)


def test_spans_have_many_lengths() -> None:
    corrupt = corruption(64)
    found = corrupt(torch.full((200, corrupt.sizes.tokens), 7), torch.Generator().manual_seed(0))
    lengths: Counter[int] = Counter()
    for row in found.targets.tolist():
        size = 0
        for token in row[1:-1]:
            if token in SENTINELS:
                lengths[size] += 1
                size = 0
            else:
                size += 1
    mean = sum(size * count for size, count in lengths.items()) / lengths.total()
    assert mean == pytest.approx(corrupt.sizes.dropped / corrupt.sizes.spans)
    assert lengths[0] == 0 and set(lengths) >= {1, 2, 3, 4, 5}


def test_the_same_seed_drops_the_same_spans() -> None:
    corrupt = corruption(32)
    ids = torch.arange(4 * corrupt.sizes.tokens).view(4, -1)
    one, same, other = (corrupt(ids, torch.Generator().manual_seed(seed)).inputs for seed in (3, 3, 4))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_too_few_sentinels_are_refused() -> None:
    sizes = SpanSizes.filling(64, rate=0.15, span=3.0)
    SpanCorruption(sizes, sentinels=SENTINELS[: sizes.spans + 1], end=END)
    with pytest.raises(InputError, match=rf"{sizes.spans} dropped spans, .* has {sizes.spans}"):
        SpanCorruption(sizes, sentinels=SENTINELS[: sizes.spans], end=END)
