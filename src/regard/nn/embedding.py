"""The first step into a model: tokens or image patches become vectors that know their place."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.dropout import Dropout
from regard.nn.masks import Layout
from regard.nn.positions import LearnedPositions

__all__ = ["PatchEmbedding", "TextEmbedding", "lookup"]


def lookup(table: nn.Embedding, ids: Tensor) -> Tensor:
    """The vectors of ids; InputError names those that the table has no row for.

    On a CPU the lookup itself notices them, so the good case costs nothing. A GPU must not be waited for: whoever moves
    ids there has checked them, as a tokenizer does that is opened for a vocabulary.
    """
    try:
        found: Tensor = table(ids)
    except IndexError:
        beyond = sorted(set(ids[(ids < 0) | (ids >= table.num_embeddings)].tolist()))
        if not beyond:
            raise
        shown = ", ".join(map(str, beyond[:8])) + (f" and {len(beyond) - 8} more" if len(beyond) > 8 else "")
        raise InputError(
            f"token ids {shown} are beyond this model's vocabulary of {table.num_embeddings:,}; expected ids from 0 to "
            f"{table.num_embeddings - 1}, so use the tokenizer that belongs to the model"
        ) from None
    return found


class TextEmbedding(nn.Module):
    """Token + position + segment vectors, summed; then norm and dropout where the family has them.

    `positions` is a module from positions to vectors. `scaled` multiplies tokens by sqrt(width) (the 2017 Transformer).
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        positions: nn.Module | None = None,
        segments: int = 0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
        scaled: bool = False,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = positions
        self.segments = nn.Embedding(segments, width) if segments else None
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(width) if scaled else 1.0

    def forward(
        self, ids: Tensor, layout: Layout, segments: Tensor | None = None, *, start: int | Tensor = 0
    ) -> Tensor:
        """ids (B, T) or packed (N,); `segments` of the same shape, 0 where not given; `start` tokens came before.

        Vectors (B, T, W) of any other kind, such as frames, may come in place of ids.
        """
        x: Tensor = ids if ids.is_floating_point() else lookup(self.tokens, ids)
        if self.scale != 1.0:
            x = x * self.scale
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        if self.positions is not None:
            self._check_length(layout.longest_sequence(ids) + (start if isinstance(start, int) else 1))
            x = x + self.positions(layout.positions(ids, start)).to(x.dtype)
        if self.norm is not None:
            x = self.norm(x)
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        result: Tensor = self.dropout(x)
        return result

    def _check_length(self, length: int) -> None:
        if isinstance(self.positions, LearnedPositions) and length > self.positions.count:
            raise ValueError(f"a text of {length} tokens, but this model has {self.positions.count} positions: cut it")


class PatchEmbedding(nn.Module):
    """An image as a sentence: square patches become words, [CLS] goes in front, each place has a learned vector."""

    def __init__(
        self, *, image: tuple[int, int], patch: tuple[int, int], channels: int, width: int, dropout: float
    ) -> None:
        super().__init__()
        self.image = image
        self.project = nn.Conv2d(channels, width, kernel_size=patch, stride=patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        count = (image[0] // patch[0]) * (image[1] // patch[1])
        self.positions = nn.Parameter(torch.zeros(1, count + 1, width))
        self.dropout = Dropout(dropout)

    def forward(self, pixels: Tensor) -> Tensor:
        """Pixels (B, channels, height, width) to vectors (B, 1 + patches, W)."""
        if tuple(pixels.shape[-2:]) != tuple(self.image):
            raise ValueError(f"this model sees images of {self.image} pixels, got {tuple(pixels.shape[-2:])}")
        patches = self.project(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(patches), -1, -1), patches], dim=1)
        result: Tensor = self.dropout(x + self.positions)
        return result
