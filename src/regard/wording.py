"""Phrases shared by messages: counts, durations, the note on truncation."""

from __future__ import annotations


def count_of(count: int, noun: str) -> str:
    """Format a count with its noun: "1 text", "1,200 texts"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def were(count: int) -> str:
    """The verb of a count of things: "was" for one, else "were"."""
    return "was" if count == 1 else "were"


def truncation_note(count: int) -> str:
    """Return the note for texts that were truncated to the model's maximum length."""
    return f"{count_of(count, 'text')} had more tokens than the model reads and {were(count)} truncated"


def excerpt(text: str, size: int) -> str:
    """Return a text on one line, cut to `size` characters."""
    text = " ".join(text.split())
    return text if len(text) <= size else text[: size - 3] + "..."


def is_count(text: str) -> bool:
    """Return whether a text is a nonnegative integer short enough for `int`, which rejects thousands of digits."""
    return len(text) < 19 and text.isdecimal()


def duration(seconds: float) -> str:
    """Format seconds as 1h05m, 2min 13s or 40s."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}min {rest}s" if minutes else f"{rest}s"


def size_text(count: int) -> str:
    """Format a number of bytes: 1.34 GB, 440.5 MB, 12 kB."""
    return (
        f"{count / 1e9:.2f} GB"
        if count >= 1e9
        else f"{count / 1e6:.1f} MB"
        if count >= 1e6
        else f"{count / 1e3:.0f} kB"
    )
