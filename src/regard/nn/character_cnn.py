"""Word vectors from characters: convolutions of several widths, max pooling and highway layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Highway(nn.Module):
    """A highway layer: g * relu(W x) + (1 - g) * x with a learned gate g."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.constant_(self.gate.bias, -2.0)  # start close to the identity

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.change(x)) + (1 - gate) * x


class CharacterCNN(nn.Module):
    """Maps the character ids (..., C) of words to word vectors (..., width). Id 0 is padding and is ignored.

    `filters` lists (kernel size, number of filters).
    """

    def __init__(
        self,
        characters: int,
        width: int,
        *,
        embedding: int = 16,
        filters: Sequence[tuple[int, int]] = ((1, 32), (2, 32), (3, 64), (4, 128)),
        highways: int = 2,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(embedding, count, size) for size, count in filters)
        self.longest = max(size for size, _ in filters)
        total = sum(count for _, count in filters)
        self.highways = nn.Sequential(*(Highway(total) for _ in range(highways)))
        self.project = nn.Linear(total, width)

    def forward(self, ids: Tensor) -> Tensor:
        # Pad so that a window starts at every character: the result must not depend on the padding of the batch.
        words = nn.functional.pad(ids.flatten(0, -2), (0, self.longest - 1))
        x = self.embedding(words).transpose(1, 2)
        pooled = []
        for convolution in self.convolutions:
            features = torch.relu(convolution(x))
            mask = words[:, None, : features.shape[2]] != 0
            pooled.append(features.masked_fill(~mask, 0.0).amax(2))
        result: Tensor = self.project(self.highways(torch.cat(pooled, dim=1)))
        return result.view(*ids.shape[:-1], -1)
