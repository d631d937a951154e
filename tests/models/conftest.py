"""Shared fixtures of the model tests: padded and packed batches from a pool of sequences."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.nn.masks import Layout, Packed, Padded


def make_batch(parts: Sequence[Tensor], layout: str, junk: float) -> tuple[Tensor, Layout]:
    """Combine sequences into one batch; padding is filled with `junk`."""
    lengths, device = [len(part) for part in parts], parts[0].device
    if layout == "packed":
        return torch.cat(list(parts)), Packed.from_lengths(lengths, device=device)
    rows = nn.utils.rnn.pad_sequence(list(parts), batch_first=True, padding_value=junk)
    return rows, Padded.from_lengths(lengths, device=device)


@pytest.fixture(scope="session")
def check_batch_invariance() -> Callable[..., None]:
    """Check that outputs do not depend on the rest of the batch: 100 random padded and packed batches from a pool.

    An item of the pool is one tensor per side (source, target), tokens first. `run` gets ((tensor, layout), ...) and
    returns the output in the layout of the last side, or one row per sequence if `whole` is set.
    """

    def check(
        run: Callable[..., Tensor],
        pool: Sequence[tuple[Tensor, ...]],
        *,
        whole: bool = False,
        trials: int = 100,
        junk: float = 3.0,
    ) -> None:
        draw = random.Random(11)
        with torch.no_grad():
            alone = [run(*((part[None], Padded()) for part in item))[0] for item in pool]
            for _ in range(trials):
                chosen = draw.sample(range(len(pool)), draw.randint(1, 6))
                sizes = [len(pool[i][-1]) for i in chosen]
                for layout in ("padded", "packed"):
                    sides = (make_batch(parts, layout, junk) for parts in zip(*(pool[i] for i in chosen), strict=True))
                    output = run(*sides)
                    rows = output.split(sizes) if layout == "packed" and not whole else output
                    for i, size, row in zip(chosen, sizes, rows, strict=True):
                        got = row if whole else row[:size]
                        torch.testing.assert_close(got, alone[i], atol=1e-5, rtol=1e-4)

    return check


@pytest.fixture(scope="session")
def texts() -> Callable[..., list[tuple[Tensor, ...]]]:
    """A pool of random id sequences, `sides` per item, each with 1 to 7 tokens (of `characters` each)."""

    def make(device: torch.device, *, sides: int = 1, vocabulary: int = 20, characters: int = 0) -> list[Any]:
        draw = random.Random(5)
        shape = (characters,) if characters else ()
        return [
            tuple(torch.randint(1, vocabulary, (draw.randint(1, 7), *shape), device=device) for _ in range(sides))
            for _ in range(12)
        ]

    return make
