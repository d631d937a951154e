"""What a task reads, one object each: a text, a pair, a text with endings to choose from, tagged words, a question.

What is None or empty is not known, as in the input of a prediction.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

__all__ = [
    "Answer",
    "ChoiceExample",
    "Example",
    "ImageExample",
    "QuestionExample",
    "TaggedExample",
    "TextExample",
    "example_key",
    "is_labeled",
    "leakage_key",
    "normalize_text",
    "without_label",
]


@dataclass(frozen=True)
class TextExample:
    """One text, or two where the task is about a pair. Several labels make a tuple, and none of them an empty one."""

    text: str
    text_pair: str | None = None
    label: str | tuple[str, ...] | float | None = None


@dataclass(frozen=True)
class ChoiceExample:
    """A text and what may follow it; `label` is the place of the right one."""

    text: str
    endings: tuple[str, ...]
    label: int | None = None


@dataclass(frozen=True)
class TaggedExample:
    """A text whose words lie at `words`, as [start, end) in characters; `tags` are IOB2: B-PER, I-PER, O."""

    text: str
    words: tuple[tuple[int, int], ...]
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Answer:
    """`text` lies at `start` of the context."""

    text: str
    start: int


@dataclass(frozen=True)
class QuestionExample:
    """`answers` are all that people gave. Where `possible` is False the context holds none."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    answerable: bool = True


@dataclass(frozen=True, eq=False)
class ImageExample:
    """Pixels from 0 to 255: (height, width) in grey, or (height, width, 3)."""

    pixels: npt.NDArray[np.uint8] = field(repr=False)
    label: str | None = None
    name: str = ""


Example = TextExample | ChoiceExample | TaggedExample | QuestionExample | ImageExample


def is_labeled(example: Example) -> bool:
    """Whether what is to be predicted is known."""
    if isinstance(example, QuestionExample):
        return bool(example.answers) or not example.answerable
    return (example.tags if isinstance(example, TaggedExample) else example.label) is not None


def without_label(example: Example) -> Example:
    """The example as a prediction sees it."""
    if isinstance(example, QuestionExample):
        return replace(example, answers=(), answerable=True)
    return replace(example, tags=None) if isinstance(example, TaggedExample) else replace(example, label=None)


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
