"""A word's vector from its characters: convolutions of several widths, the strongest answer of each, highways."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["CharacterCNN", "Highway"]


class Highway(nn.Module):
    """g * relu(W x) + (1 - g) * x: each number is changed or carried through, as its gate g says."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.constant_(self.gate.bias, -2.0)  # begin by carrying through

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.change(x)) + (1 - gate) * x


class CharacterCNN(nn.Module):
    """Character ids (..., C) of words to word vectors (..., width). Id 0 is padding and adds nothing.

    `filters` lists (characters seen at once, number of filters).
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
        # Room for a window to begin at every character: a word's vector must not depend on the padding behind it.
        words = nn.functional.pad(ids.flatten(0, -2), (0, self.longest - 1))
        x = self.embedding(words).transpose(1, 2)
        best = []
        for convolution in self.convolutions:
            answers = torch.relu(convolution(x))
            real = words[:, None, : answers.shape[2]] != 0
            best.append(answers.masked_fill(~real, 0.0).amax(2))
        result: Tensor = self.project(self.highways(torch.cat(best, dim=1)))
        return result.view(*ids.shape[:-1], -1)
