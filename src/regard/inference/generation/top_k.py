"""The highest numbers of long rows. Knows nothing of what they mean."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["top_k"]

PIECE = 256  # numbers of a row that are looked at together


def top_k(numbers: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest of each row (B, V), highest first, and their places; the first of equals where one is asked.

    It is `topk`, which is slow for a vocabulary. They lie in the `count` pieces of the row with the highest maxima, and
    a maximum is quickly found.
    """
    rows, size = numbers.shape
    pieces = size // PIECE
    if count > pieces // 4 or numbers.is_cuda:
        return _top(numbers, count)
    body = torch.unflatten(numbers[:, : pieces * PIECE], 1, (pieces, PIECE))
    chosen = _top(body.amax(-1), count)[1]
    found = body.gather(1, chosen[:, :, None].expand(-1, -1, PIECE)).flatten(1)
    places = (chosen[:, :, None] * PIECE + torch.arange(PIECE, device=numbers.device)).flatten(1)
    if size > pieces * PIECE:
        rest = torch.arange(pieces * PIECE, size, device=numbers.device)
        found = torch.cat([found, numbers[:, rest[0] :]], 1)
        places = torch.cat([places, rest.expand(rows, -1)], 1)
    values, index = _top(found, count)
    return values, places.gather(1, index)


def _top(numbers: Tensor, count: int) -> tuple[Tensor, Tensor]:
    values, places = numbers.max(-1, keepdim=True) if count == 1 else numbers.topk(count)
    return values, places
