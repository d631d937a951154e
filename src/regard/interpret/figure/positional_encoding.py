"""Positional encodings as matrices: sinusoids in both arrangements, and the vectors that a model has learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.errors import InputError
from regard.nn import TextEmbedding, sinusoids
from regard.nn.positions import Arrangement, LearnedPositions, SinusoidalPositions

MAX_POSITIONS, MAX_WIDTH = 512, 1024


@dataclass(frozen=True, eq=False)
class PositionalEncoding:
    """A matrix (positions, width). `arrangement` is None if it was learned."""

    matrix: NDArray[np.float32]
    arrangement: Arrangement | None


def positional_encoding(
    width: int = 128, count: int = 50, arrangement: Arrangement = "interleaved"
) -> PositionalEncoding:
    """p(t)[2k] = sin(w_k t), p(t)[2k+1] = cos(w_k t) with w_k = 10000^(-2k/width).

    "halves" has all sines before all cosines.
    """
    if width % 2 or not 2 <= width <= MAX_WIDTH:
        raise InputError(f"width is {width}; expected an even number from 2 to {MAX_WIDTH}")
    if not 1 <= count <= MAX_POSITIONS:
        raise InputError(f"the number of positions is {count}; expected 1 to {MAX_POSITIONS}")
    return PositionalEncoding(sinusoids(torch.arange(count), width, arrangement=arrangement).numpy(), arrangement)


def model_positional_encoding(model: nn.Module, count: int = 50) -> PositionalEncoding | None:
    """The first vectors that the model adds for positions; None if it adds none."""
    embeddings = (module for module in model.modules() if isinstance(module, TextEmbedding))
    positions = next((one.positions for one in embeddings if one.positions), None)
    if isinstance(positions, LearnedPositions):
        rows = positions.weight[positions.offset : positions.offset + min(count, positions.count)]
        return PositionalEncoding(rows.detach().float().cpu().numpy(), None)
    if isinstance(positions, SinusoidalPositions):
        return positional_encoding(positions.width, count, positions.arrangement)
    return None
