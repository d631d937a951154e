"""Sentences that several places say. Knows regular nouns."""

from __future__ import annotations

__all__ = ["amount", "cut"]


def amount(count: int, noun: str) -> str:
    """`amount(1, "text")` is "1 text", `amount(1200, "text")` is "1,200 texts"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def cut(count: int) -> str:
    """What a reader must know of texts that were not read whole."""
    return f"{amount(count, 'text')} had more tokens than the model reads, and the rest was cut"
