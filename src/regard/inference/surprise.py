"""The surprise of a model at tokens, in nats: tokens in, one number out.

Knows models and windows. Knows no text, no tokenizer and no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.checkpoints.ready import BATCH_TOKENS, MaskedLM, in_groups
from regard.data.batch import collate
from regard.models import Gpt
from regard.nn import Packed

__all__ = ["Progress", "Window", "causal_nll", "masked_nll", "windows"]

ROWS = 512  # as wide as the vocabulary, at once: 100 MB for GPT-2

Progress = Callable[[int, int], None]  # hears how many tokens are scored so far, and of how many


class Window(NamedTuple):
    """A causal model reads ids [start, end) and is scored on what follows the ids from `scored` on."""

    start: int
    scored: int
    end: int


def windows(count: int, length: int, stride: int) -> Iterator[Window]:
    """Windows of at most `length` ids, `stride` apart, that together score what follows each of `count` ids once."""
    scored = 0
    for start in range(0, count, stride):
        end = min(start + length, count)
        yield Window(start, scored, end)
        if end == count:
            return
        scored = end


def causal_nll(model: Gpt, ids: Sequence[int], *, length: int, stride: int, tell: Progress) -> float:
    """The sum over all ids but the first, each from the ids before it in its window."""
    count = len(ids) - 1
    device = model.embedding.tokens.weight.device
    nll = 0.0
    tell(0, count)
    for group in in_groups(list(windows(count, length, stride)), BATCH_TOKENS[device.type] // length):
        batch = collate([ids[window.start : window.end] for window in group]).to(device)
        assert isinstance(batch.layout, Packed)
        hidden = model(batch.ids, batch.layout)
        ends = batch.layout.starts[1:].tolist()
        scored = torch.cat([hidden[end - (w.end - w.scored) : end] for end, w in zip(ends, group, strict=True)])
        # Each window scores from where the one before it ended: together, one piece of the text.
        targets = torch.tensor(ids[group[0].scored + 1 : group[-1].end + 1], device=device)
        for rows, right in zip(torch.split(scored, ROWS), torch.split(targets, ROWS), strict=True):
            nll += _nll(model.logits(rows), right)
        tell(group[-1].end, count)
    return nll


def masked_nll(
    asked: MaskedLM,
    body: Sequence[int],
    *,
    around: tuple[Sequence[int], Sequence[int]],
    places: Sequence[int],
    length: int,
    tell: Progress,
) -> float:
    """The sum over `places` of `body`, each masked alone in a window of `length` ids, in its middle where it can be.

    `around` are the special tokens before and behind every window.
    """
    before, after = around
    device = asked.head.bias.device
    nll, done = 0.0, 0
    tell(0, len(places))
    for group in in_groups(places, asked.budget // (len(before) + length + len(after))):
        rows, masks = [], []
        for number, place in enumerate(group):
            start = min(max(0, place - length // 2), len(body) - length)
            row = [*before, *body[start : start + length], *after]
            masks.append((number, len(before) + place - start))
            row[masks[-1][1]] = asked.mask
            rows.append(row)
        nll += _nll(asked.logits(rows, masks), torch.tensor([body[place] for place in group], device=device))
        done += len(group)
        tell(done, len(places))
    return nll


def _nll(logits: Tensor, targets: Tensor) -> float:
    return float(F.cross_entropy(logits.float(), targets, reduction="none").double().sum())
