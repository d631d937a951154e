"""When two examples are the same: what they ask, whatever its capitals and blanks.

Knows examples and nothing of files, labels or models.
"""

from __future__ import annotations

from collections.abc import Hashable

from regard.data.examples import ChoiceExample, Example, ImageExample, QuestionExample, TextExample

__all__ = ["example_key", "leakage_key", "normalize_text"]


def example_key(example: Example) -> Hashable:
    """What two examples share that ask the same."""
    if isinstance(example, ImageExample):
        return example.pixels.shape, example.pixels.tobytes()
    if isinstance(example, QuestionExample):
        return normalize_text(example.question), normalize_text(example.context)
    if isinstance(example, ChoiceExample):
        return normalize_text(example.text), frozenset(map(normalize_text, example.endings))
    second = example.text_pair if isinstance(example, TextExample) else None
    return normalize_text(example.text), None if second is None else normalize_text(second)


def leakage_key(example: Example) -> Hashable:
    """What must not be both learned from and judged on: of a question that is its context, else the whole example."""
    return normalize_text(example.context) if isinstance(example, QuestionExample) else example_key(example)


def normalize_text(text: str) -> str:
    """Equal for texts that differ in capitals and blanks alone."""
    return " ".join(text.casefold().split())
