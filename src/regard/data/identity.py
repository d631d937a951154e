"""When two examples are the same: what they ask, whatever its capitals and blanks.

Knows examples and nothing of files, labels or models.
"""

from __future__ import annotations

from collections.abc import Hashable

from regard.data.examples import Choice, Example, Picture, Question, Text

__all__ = ["identity", "same", "subject"]


def identity(example: Example) -> Hashable:
    """What two examples share that ask the same."""
    if isinstance(example, Picture):
        return example.pixels.shape, example.pixels.tobytes()
    if isinstance(example, Question):
        return same(example.question), same(example.context)
    if isinstance(example, Choice):
        return same(example.text), frozenset(map(same, example.endings))
    second = example.second if isinstance(example, Text) else None
    return same(example.text), None if second is None else same(second)


def subject(example: Example) -> Hashable:
    """What must not be both learned from and judged on: of a question that is its context, else the whole example."""
    return same(example.context) if isinstance(example, Question) else identity(example)


def same(text: str) -> str:
    """Equal for texts that differ in capitals and blanks alone."""
    return " ".join(text.casefold().split())
