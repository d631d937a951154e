"""How many of something, in words that agree. Knows regular nouns."""

from __future__ import annotations

__all__ = ["amount"]


def amount(count: int, noun: str) -> str:
    """`amount(1, "text")` is "1 text", `amount(1200, "text")` is "1,200 texts"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
