"""Positional encodings as matrices to look at: sinusoids in both layouts, and what a model has learned instead.

Knows formulas and embeddings. Knows no text and no page.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.errors import InputError
from regard.nn import TextEmbedding, sinusoids
from regard.nn.positions import Arrangement, LearnedPositions, SinusoidalPositions

__all__ = ["LONGEST", "WIDEST", "PositionalEncoding", "model_positional_encoding", "positional_encoding"]

LONGEST, WIDEST = 512, 1024


@dataclass(frozen=True, eq=False)
class PositionalEncoding:
    """A matrix (positions, width). `arrangement` is None where it was learned."""

    matrix: NDArray[np.float32]
    arrangement: Arrangement | None

    def document(self) -> dict[str, object]:
        return {
            "width": self.matrix.shape[1],
            "count": self.matrix.shape[0],
            "arrangement": self.arrangement,
            "matrix": self.matrix.tolist(),
        }


def positional_encoding(
    width: int = 128, count: int = 50, arrangement: Arrangement = "interleaved"
) -> PositionalEncoding:
    """p(t)[2k] = sin(w_k t), p(t)[2k+1] = cos(w_k t) with w_k = 10000^(-2k/width).

    "halves" has all sines before all cosines.
    """
    if width % 2 or not 2 <= width <= WIDEST:
        raise InputError(
            f"the width is {width}; expected an even number from 2 to {WIDEST}: sines and cosines are pairs"
        )
    if not 1 <= count <= LONGEST:
        raise InputError(f"the number of positions is {count}; expected 1 to {LONGEST}")
    return PositionalEncoding(sinusoids(torch.arange(count), width, arrangement=arrangement).numpy(), arrangement)


def model_positional_encoding(model: nn.Module, count: int = 50) -> PositionalEncoding | None:
    """The first vectors that the model adds for places; None where it adds none."""
    found = next((one.positions for one in model.modules() if isinstance(one, TextEmbedding) and one.positions), None)
    if isinstance(found, LearnedPositions):
        rows = found.weight[found.offset : found.offset + min(count, found.count)]
        return PositionalEncoding(rows.detach().float().cpu().numpy(), None)
    if isinstance(found, SinusoidalPositions):
        return positional_encoding(found.width, count, found.arrangement)
    return None
