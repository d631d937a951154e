"""The examples of each task: texts, text pairs, multiple choice, tagged words, questions, images.

A label that is None or empty is unknown, as in the input of a prediction.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class TextExample:
    """A text or a pair of texts. A multi-label example has a tuple of labels, which may be empty."""

    text: str
    text_pair: str | None = None
    label: str | tuple[str, ...] | float | None = None


@dataclass(frozen=True)
class ChoiceExample:
    """A text and its possible endings; `label` is the index of the correct one."""

    text: str
    endings: tuple[str, ...]
    label: int | None = None


@dataclass(frozen=True)
class TaggedExample:
    """A text with tagged words. `words` are [start, end) in characters; `tags` are IOB2: B-PER, I-PER, O."""

    text: str
    words: tuple[tuple[int, int], ...]
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Answer:
    """An answer: `text` starts at character `start` of the context."""

    text: str
    start: int


@dataclass(frozen=True)
class QuestionExample:
    """A question about a context. `answers` are all reference answers; `answerable` is False if there is none."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    answerable: bool = True


@dataclass(frozen=True, eq=False)
class ImageExample:
    """An image with pixels from 0 to 255: (height, width) in gray, or (height, width, 3)."""

    pixels: npt.NDArray[np.uint8] = field(repr=False)
    label: str | None = None
    name: str = ""


Example = TextExample | ChoiceExample | TaggedExample | QuestionExample | ImageExample


def is_labeled(example: Example) -> bool:
    """Return whether the example has a label."""
    if isinstance(example, QuestionExample):
        return bool(example.answers) or not example.answerable
    return (example.tags if isinstance(example, TaggedExample) else example.label) is not None


def without_label(example: Example) -> Example:
    """Return the example without its label, tags or answers."""
    if isinstance(example, QuestionExample):
        return replace(example, answers=(), answerable=True)
    return replace(example, tags=None) if isinstance(example, TaggedExample) else replace(example, label=None)


def example_key(example: Example) -> Hashable:
    """Return a key that is equal for examples with the same input."""
    if isinstance(example, ImageExample):
        return example.pixels.shape, example.pixels.tobytes()
    if isinstance(example, QuestionExample):
        return normalize_text(example.question), normalize_text(example.context)
    if isinstance(example, ChoiceExample):
        return normalize_text(example.text), frozenset(map(normalize_text, example.endings))
    second = example.text_pair if isinstance(example, TextExample) else None
    return normalize_text(example.text), None if second is None else normalize_text(second)


def leakage_key(example: Example) -> Hashable:
    """Return a key that training and evaluation data must not share: the context of a question, else `example_key`."""
    return normalize_text(example.context) if isinstance(example, QuestionExample) else example_key(example)


def normalize_text(text: str) -> str:
    """Fold case and collapse whitespace."""
    return " ".join(text.casefold().split())
