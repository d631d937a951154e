"""Embeddings of tokens and of image patches, with positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.dropout import Dropout
from regard.nn.masks import Layout
from regard.nn.positions import LearnedPositions


def lookup(table: nn.Embedding, ids: Tensor) -> Tensor:
    """Return the vectors of ids; raise InputError that names ids outside the table.

    On a CPU the lookup itself raises, so valid ids cost nothing. On a GPU ids are not checked, which would require
    synchronization: the caller checks them, as a tokenizer that is opened for a vocabulary does.
    """
    try:
        vectors: Tensor = table(ids)
    except IndexError:
        invalid = sorted(set(ids[(ids < 0) | (ids >= table.num_embeddings)].tolist()))
        if not invalid:
            raise
        listed = ", ".join(map(str, invalid[:8])) + (f" and {len(invalid) - 8} more" if len(invalid) > 8 else "")
        raise InputError(
            f"token ids {listed} are beyond this model's vocabulary of {table.num_embeddings:,}; expected ids from 0 "
            f"to {table.num_embeddings - 1}, so use the tokenizer that belongs to the model"
        ) from None
    return vectors


class TextEmbedding(nn.Module):
    """The sum of token, position and segment embeddings, followed by the optional norm and dropout.

    `positions` maps positions to vectors. `scaled` multiplies token vectors by sqrt(width) (the 2017 Transformer).
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
        """Embed ids (B, T) or packed (N,). `segments` has the same shape, default 0; `start` tokens precede the input.

        Vectors (B, T, W), such as image frames, are accepted in place of ids.
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
            raise ValueError(f"text of {length} tokens, but this model has {self.positions.count} positions: cut it")


class PatchEmbedding(nn.Module):
    """Embeds an image as a sequence of patches after [CLS], with a learned vector per position."""

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
        """Map pixels (B, channels, height, width) to vectors (B, 1 + patches, W)."""
        if tuple(pixels.shape[-2:]) != tuple(self.image):
            raise ValueError(f"expected images of {self.image} pixels, got {tuple(pixels.shape[-2:])}")
        patches = self.project(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(patches), -1, -1), patches], dim=1)
        result: Tensor = self.dropout(x + self.positions)
        return result
