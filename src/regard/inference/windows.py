"""Windows over token ids that are longer than a model reads at once. Knows ids only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from regard.text.tokenizer import Encoding


class Window(NamedTuple):
    """A causal model reads ids [start, end) and is scored on the ids that follow positions [scored, end)."""

    start: int
    scored: int
    end: int


def windows(count: int, length: int, stride: int) -> Iterator[Window]:
    """Windows of at most `length` ids, `stride` apart, that score the successor of each of `count` ids once."""
    scored = 0
    for start in range(0, count, stride):
        end = min(start + length, count)
        yield Window(start, scored, end)
        if end == count:
            return
        scored = end


def split_special_tokens(encoding: Encoding) -> tuple[list[int], list[int], list[int]]:
    """The special tokens before a text, the ids of the text (empty if it has none), and the special tokens after it."""
    inner = [position for position, special in enumerate(encoding.special) if not special]
    if not inner:
        return encoding.ids, [], []
    first, end = inner[0], inner[-1] + 1
    return encoding.ids[:first], encoding.ids[first:end], encoding.ids[end:]
