"""Attention within many short sequences of a packed batch on a CPU, as a few batched matrix products.

PyTorch's kernel takes a block of queries at a time, which for sequences of a few dozen tokens costs more than the
arithmetic. Here all sequences of the batch become one padded rectangle; softmax runs over rows of at least 16 numbers,
below which PyTorch computes it one number at a time.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.nn.masks import Packed

MAX_LENGTH = 64  # tokens per sequence
MIN_SEQUENCES = 3  # one or two are as fast in PyTorch's kernel
MIN_KEYS = 16
MAX_PADDING = 1.5  # tokens of the rectangle per token of the batch
MASKED = -1e30


@dataclass(frozen=True, eq=False)
class Rectangle:
    """The rectangle (count, length) of a packed batch: the token at each position, and the position of each token.

    Without padding the indices and the `mask`, which is added to the scores, are None.
    """

    count: int
    length: int
    tokens: Tensor | None
    positions: Tensor | None
    mask: Tensor | None


_rectangles: weakref.WeakKeyDictionary[Packed, Rectangle] = weakref.WeakKeyDictionary()  # shared by all layers


def short_attention(query: Tensor, key: Tensor, value: Tensor, layout: Packed, *, scale: float) -> Tensor | None:
    """Attend within each sequence: (N, H, D) of queries, keys and values to (N, H, D); None if it does not apply."""
    if query.device.type != "cpu" or query.dtype != torch.float32 or torch.is_grad_enabled():
        return None
    if layout.sizes is None or len(layout.sizes) < MIN_SEQUENCES or layout.max_length > MAX_LENGTH:
        return None
    if len(layout.sizes) * max(layout.max_length, MIN_KEYS) > MAX_PADDING * len(query) + 4 * MIN_KEYS:
        return None
    rectangle = _rectangles.get(layout)
    if rectangle is None:
        rectangle = _rectangles[layout] = make_rectangle(layout)
    count, length = rectangle.count, rectangle.length
    _, heads, width = query.shape

    def spread(x: Tensor) -> Tensor:
        x = x if rectangle.tokens is None else x.index_select(0, rectangle.tokens)
        return x.view(count, length, heads, width).transpose(1, 2).reshape(count * heads, length, width)

    scores = torch.bmm(spread(query), spread(key).transpose(1, 2)).mul_(scale)
    if rectangle.mask is not None:
        scores.view(count, heads, length, length).add_(rectangle.mask)
    mixed = torch.bmm(scores.softmax(-1), spread(value)).view(count, heads, length, width).transpose(1, 2)
    mixed = mixed.reshape(count * length, heads, width)
    return mixed if rectangle.positions is None else mixed.index_select(0, rectangle.positions)


def make_rectangle(layout: Packed) -> Rectangle:
    lengths = np.asarray(layout.lengths)
    length = max(int(lengths.max()), MIN_KEYS)
    if (lengths == length).all():
        return Rectangle(len(lengths), length, None, None, None)
    starts = np.cumsum(lengths) - lengths
    inside = np.arange(length) < lengths[:, None]
    tokens = np.where(inside, starts[:, None] + np.arange(length), 0).reshape(-1)
    positions = np.flatnonzero(inside.reshape(-1))
    mask = torch.from_numpy(np.where(inside, 0.0, MASKED).astype(np.float32))[:, None, None]
    return Rectangle(len(lengths), length, torch.from_numpy(tokens), torch.from_numpy(positions), mask)
