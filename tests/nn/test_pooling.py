"""Packed, padded and compiled batches are pooled alike."""

from __future__ import annotations

import pytest
import torch

from regard.nn.masks import Packed
from regard.nn.pooling import POOLINGS, pool, pool_padded, pool_scattered

LENGTHS = [3, 1, 7, 4]


@pytest.mark.parametrize("pooling", [*POOLINGS, "cls+mean", "lasttoken+max+weightedmean"])
def test_packed_and_padded(pooling: str) -> None:
    rows = [torch.randn(length, 5) for length in LENGTHS]
    packed = pool(torch.cat(rows), Packed.from_lengths(LENGTHS), pooling)
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=torch.nan)
    mask = ~padded[..., :1].isnan()
    torch.testing.assert_close(pool_padded(padded, mask, pooling), packed)
    without_last = pool(torch.cat(rows)[:-4], Packed.from_lengths(LENGTHS[:-1]), pooling)
    torch.testing.assert_close(without_last, packed[:-1])


@pytest.mark.parametrize("pooling", [*POOLINGS, "mean+cls"])
def test_the_first_tokens_are_left_out(pooling: str) -> None:
    rows = [torch.randn(length + 2, 5) for length in LENGTHS]
    found = pool(torch.cat(rows), Packed.from_lengths([len(row) for row in rows]), pooling, skip=2)
    rest = pool(torch.cat([row[2:] for row in rows]), Packed.from_lengths(LENGTHS), pooling)
    if pooling == "weightedmean":  # whose weights count all tokens
        weights = [torch.arange(3.0, len(row) + 1)[:, None] for row in rows]
        rest = torch.stack([(row[2:] * w).sum(0) / w.sum() for row, w in zip(rows, weights, strict=True)])
    torch.testing.assert_close(found, rest)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_empty_sequences_and_fillers_at_the_end_change_nothing(pooling: str) -> None:
    """As in a batch that fills the shape of a CUDA graph."""
    hidden, layout = torch.randn(sum(LENGTHS) + 3, 5), Packed.from_lengths(LENGTHS)
    positions = torch.cat([layout.position_ids, torch.zeros(3, dtype=torch.long)])
    starts = torch.cat([layout.starts, layout.starts[-1:].expand(2)])
    found = pool(hidden, Packed(None, starts, positions, 8), pooling)
    torch.testing.assert_close(found[: len(LENGTHS)], pool(hidden[:-3], layout, pooling))


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_scattered(pooling: str) -> None:
    hidden, layout = torch.randn(sum(LENGTHS), 5), Packed.from_lengths(LENGTHS)
    owner = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    padded = torch.cat([hidden, torch.randn(2, 5)]), torch.cat([owner, torch.full((2,), len(LENGTHS))])
    torch.testing.assert_close(pool_scattered(*padded, torch.tensor(LENGTHS), pooling), pool(hidden, layout, pooling))
