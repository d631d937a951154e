"""What a chapter of the course is made of. To write one:

    # chapters/attention.py
    def _scores(models: Models) -> list[StoryBlock]:
        from regard.interpret.translation import ...      # torch is imported inside functions only

        with models.use("regard-fr-en") as loaded:
            ...
        rows = [DeckRow("accuracy", deck="98.125", ours=f"{accuracy:.3f}", erratum="P13")]
        return [StoryTable(...), beside_deck(rows)]

    CHAPTER = Chapter(
        name="attention",
        title="Attention and its five steps",
        summary="One sentence for the list of chapters.",
        parts=(
            Prose("Text in our own words.", heading="A heading"),
            Computed("scores", "The scores of one step", _scores, spec=("A6", "A7")),
            LiveView("grid", "translate", {"source": "Je suis étudiant", "model": "regard-fr-en"}, spec=("A14",)),
            Exercise("focus", "Which word has the most weight?", ("je", "suis", "étudiant"), _focus, spec=("A14",)),
            CodeBlock("run", 'import regard\n\nprint(regard.fill("a _ film"))'),
        ),
        reading=("bahdanau2015",),
    )

The rules:

- Names are unique in the chapter, lower case with hyphens; prose gets one by its position. `spec` has keys of
  `syllabus.SYLLABUS`.
- Prose has no results: each number that is a result is computed. Numbers that a deck prints may be quoted as the
  deck's.
- A part that takes longer than about two seconds on a CPU is `slow`: the page shows a Run button, the command needs
  `--run`. A slow function may be a generator that yields events (`regard.events.Progress`) and returns the blocks.
- A `LiveView` has the arguments of the verb's request. `route` selects something in the view: {"layer": "3"}.
- A chapter of more than about 500 lines takes parts from sibling modules of `chapters/`.
- Blocks are those of `regard.render.story`, which have a text for the terminal as well.

`tests/lessons/test_course.py` computes every part, runs every code block and checks every answer.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from regard.checkpoints.models import Models
from regard.events import Event
from regard.lessons.course.bibliography import BIBLIOGRAPHY
from regard.lessons.course.syllabus import SYLLABUS
from regard.render.story import StoryBlock, StoryTable

T = TypeVar("T")
# A function of the models, which may yield events on the way.
Computation: TypeAlias = Callable[[Models], T | Generator[Event, None, T]]
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Prose:
    """Paragraphs, separated by blank lines; `code` in backticks."""

    text: str
    heading: str = ""
    name: str = ""  # given by the chapter
    spec: tuple[str, ...] = ()


@dataclass(frozen=True)
class Computed:
    """Blocks that are computed when the chapter is shown; slow ones when the reader asks for them."""

    name: str
    title: str
    compute: Computation[Sequence[StoryBlock]]
    slow: bool = False
    spec: tuple[str, ...] = ()


@dataclass(frozen=True)
class LiveView:
    """A verb's view with its arguments filled in: live in the studio, its text in the terminal, its data in a file."""

    name: str
    verb: str
    arguments: Mapping[str, object]
    route: Mapping[str, str] = field(default_factory=dict)  # what is selected in the view
    title: str = ""
    slow: bool = False
    spec: tuple[str, ...] = ()


class ExerciseAnswer(NamedTuple):
    """The index of the right choice, and why it is right, with computed numbers."""

    choice: int
    explanation: str


@dataclass(frozen=True)
class Exercise:
    """A question with choices: the reader predicts, then sees the computed answer."""

    name: str
    question: str
    choices: tuple[str, ...]
    answer: Computation[ExerciseAnswer]
    slow: bool = False
    spec: tuple[str, ...] = ()


@dataclass(frozen=True)
class CodeBlock:
    """Lines that run as they stand."""

    name: str
    code: str
    language: Literal["python", "shell"] = "python"
    title: str = ""
    slow: bool = False  # its test is slow
    spec: tuple[str, ...] = ()


Part: TypeAlias = Prose | Computed | LiveView | Exercise | CodeBlock


@dataclass(frozen=True)
class Chapter:
    """A chapter; `reading` has keys of the bibliography."""

    name: str
    title: str
    summary: str
    parts: tuple[Part, ...] = ()
    reading: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parts = tuple(
            replace(part, name=part.name or f"prose-{number}") if isinstance(part, Prose) else part
            for number, part in enumerate(self.parts, 1)
        )
        object.__setattr__(self, "parts", parts)
        names = [part.name for part in parts]
        for name in names:
            if not NAME.fullmatch(name) or names.count(name) > 1:
                raise ValueError(f"{self.name}: {name!r} is used twice, or is not lower case with hyphens")
        unknown = [key for key in self.reading if key not in BIBLIOGRAPHY]
        unknown += [key for part in parts for key in part.spec if key not in SYLLABUS]
        if unknown:
            raise ValueError(f"{self.name}: {unknown[0]!r} is neither in the bibliography nor in the syllabus")

    @property
    def exercises(self) -> list[str]:
        return [part.name for part in self.parts if isinstance(part, Exercise)]


class DeckRow(NamedTuple):
    """One quantity that a deck prints, and what we compute. `erratum` is a key of docs/errata.md, such as "P9"."""

    quantity: str
    deck: str
    ours: str
    note: str = ""
    erratum: str = ""


def beside_deck(rows: Sequence[DeckRow], caption: str = "") -> StoryTable:
    """The deck's numbers beside ours."""
    cells = []
    for row in rows:
        erratum = f"erratum {row.erratum}" if row.erratum else ""
        cells.append((row.quantity, row.deck, row.ours, "; ".join(filter(None, (row.note, erratum)))))
    return StoryTable(headers=("quantity", "deck", "ours", "note"), rows=cells, caption=caption, text_columns=[3])


def compute(function: Computation[T], models: Models) -> Generator[Event, None, T]:
    """Call the function: yields its events, if it has any, and returns its value."""
    outcome = function(models)
    if inspect.isgenerator(outcome):
        value: T = yield from outcome
        return value
    return outcome  # type: ignore[return-value]
