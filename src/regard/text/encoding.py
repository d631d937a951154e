"""The encoding of one text, and the truncation of texts that are too long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import tokenizers

from regard.errors import InputError

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Encoding:
    """The tokens of one text or one pair of texts. Every list has one entry per token.

    `offsets` are character positions in the original text and `words` are word indices; in a pair, both start from 0
    in each text. Special tokens have (0, 0) and None. `special` marks the tokens that the tokenizer added, not a
    "[SEP]" that the text itself contains. `cut` is the number of tokens removed by truncation.
    """

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    words: list[int | None]
    segments: list[int]
    special: list[bool]
    cut: int

    def __len__(self) -> int:
        return len(self.ids)


def encoding(encoded: tokenizers.Encoding, length: int | None) -> Encoding:
    """Convert an encoding of the `tokenizers` library, truncated to `length` tokens."""
    removed = cuts(encoded, length)
    ids = without(encoded.ids, removed)
    return Encoding(
        ids=ids,
        tokens=without(encoded.tokens, removed),
        offsets=without(encoded.offsets, removed),
        words=without(encoded.word_ids, removed),
        segments=without(encoded.type_ids, removed),
        special=without(list(map(bool, encoded.special_tokens_mask)), removed),
        cut=len(encoded) - len(ids),
    )


def cuts(encoded: tokenizers.Encoding, length: int | None) -> list[slice]:
    """The slices to delete from the lists, last slice first, so that `length` tokens remain.

    The library's own truncation is a setting of the pipeline, which threads share, so it is not used.
    """
    if length is not None and length < 1:
        raise InputError(f"max_length should be at least 1, or None for no limit, got {length}")
    if length is None or len(encoded) <= length:
        return []
    owners = encoded.sequence_ids
    first, second = owners.count(0), owners.count(1)
    room = length - (len(owners) - first - second)
    if room < 0:
        raise InputError(f"max_length={length} has no room for the {length - room} special tokens; give a larger one")
    parts = []
    for owner, old, new in zip((0, 1), (first, second), longest_first(first, second, room), strict=True):
        if new < old:
            start = owners.index(owner)
            parts.append(slice(start + new, start + old))
    return parts[::-1]


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """The lengths of two texts that are truncated, the longer one first, to `room` tokens together."""
    short, long = sorted((first, second))
    short = min(short, room // 2)
    long = min(long, room - short)
    return (long, short) if first > second else (short, long)


def without(values: list[Item], parts: list[slice]) -> list[Item]:
    """Delete the slices from the list in place; the last slice comes first."""
    for part in parts:
        del values[part]
    return values
