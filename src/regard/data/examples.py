"""What a task reads, one object each: a text, a pair, a text with endings to choose from, tagged words, a question.

Knows nothing of files, tokens or models. What is None or empty is not known, as in the input of a prediction.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

__all__ = ["Answer", "Choice", "Example", "Picture", "Question", "Tagged", "Text", "labelled", "unlabelled"]


@dataclass(frozen=True)
class Text:
    """One text, or two where the task is about a pair. Several labels make a tuple, and none of them an empty one."""

    text: str
    second: str | None = None
    label: str | tuple[str, ...] | float | None = None


@dataclass(frozen=True)
class Choice:
    """A text and what may follow it; `label` is the place of the right one."""

    text: str
    endings: tuple[str, ...]
    label: int | None = None


@dataclass(frozen=True)
class Tagged:
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
class Question:
    """`answers` are all that people gave. Where `possible` is False the context holds none."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    possible: bool = True


@dataclass(frozen=True, eq=False)
class Picture:
    """Pixels from 0 to 255: (height, width) in grey, or (height, width, 3)."""

    pixels: npt.NDArray[np.uint8] = field(repr=False)
    label: str | None = None
    name: str = ""


Example = Text | Choice | Tagged | Question | Picture


def labelled(example: Example) -> bool:
    """Whether what is to be predicted is known."""
    if isinstance(example, Question):
        return bool(example.answers) or not example.possible
    return (example.tags if isinstance(example, Tagged) else example.label) is not None


def unlabelled(example: Example) -> Example:
    """The example as a prediction sees it."""
    if isinstance(example, Question):
        return replace(example, answers=(), possible=True)
    return replace(example, tags=None) if isinstance(example, Tagged) else replace(example, label=None)
