"""One encoded text: the lists a caller sees, and what is cut from them when the text is too long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import tokenizers

from regard.errors import InputError

__all__ = ["Encoding", "cuts", "encoding", "without"]

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Encoding:
    """One text, or one pair, as tokens; all lists have one entry a token.

    `offsets` are characters of the original text and `words` the index of the word in it; in a pair each text counts
    from 0. Special tokens have (0, 0) and None. `special` marks what the tokenizer put around the text, not a "[SEP]"
    that the text itself contains. `cut` is the number of tokens that did not fit.
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


def encoding(found: tokenizers.Encoding, length: int | None) -> Encoding:
    """Copy what the library found, cut to `length` tokens."""
    gone = cuts(found, length)
    ids = without(found.ids, gone)
    return Encoding(
        ids=ids,
        tokens=without(found.tokens, gone),
        offsets=without(found.offsets, gone),
        words=without(found.word_ids, gone),
        segments=without(found.type_ids, gone),
        special=without(list(map(bool, found.special_tokens_mask)), gone),
        cut=len(found) - len(ids),
    )


def cuts(found: tokenizers.Encoding, length: int | None) -> list[slice]:
    """What to take out of the lists, last part first, so that `length` tokens remain.

    Done here because the library's own truncation is a setting of the pipeline, which threads share.
    """
    if length is not None and length < 1:
        raise InputError(f"max_length should be at least 1, or None for no limit, got {length}")
    if length is None or len(found) <= length:
        return []
    owners = found.sequence_ids
    first, second = owners.count(0), owners.count(1)
    room = length - (len(owners) - first - second)
    if room < 0:
        raise InputError(f"max_length={length} has no room for the {length - room} special tokens; give a larger one")
    parts = []
    for owner, had, kept in zip((0, 1), (first, second), longest_first(first, second, room), strict=True):
        if kept < had:
            start = owners.index(owner)
            parts.append(slice(start + kept, start + had))
    return parts[::-1]


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """How much of two texts stays: the longer gives way until they are equal, then both; an odd one is the longer's."""
    short, long = sorted((first, second))
    short = min(short, room // 2)
    long = min(long, room - short)
    return (long, short) if first > second else (short, long)


def without(values: list[Item], parts: list[slice]) -> list[Item]:
    """The list, changed in place, without the parts; the last part comes first."""
    for part in parts:
        del values[part]
    return values
