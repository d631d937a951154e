"""Sentences that several places say."""

from __future__ import annotations

__all__ = ["count_of", "duration", "is_count", "truncation_note"]


def count_of(count: int, noun: str) -> str:
    """`amount(1, "text")` is "1 text", `amount(1200, "text")` is "1,200 texts"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def truncation_note(count: int) -> str:
    """What a reader must know of texts that were not read whole."""
    return f"{count_of(count, 'text')} had more tokens than the model reads, and the rest was cut"


def is_count(text: str) -> bool:
    """Whether a text is a whole number from 0 that `int` reads: Python refuses one of thousands of digits."""
    return len(text) < 19 and text.isdecimal()


def duration(seconds: float) -> str:
    """1h05m, 2min 13s or 40s."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}min {rest}s" if minutes else f"{rest}s"
