"""`Lesson`: what `regard lesson` returns: the list of chapters and, of one of them, the parts with their results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill, indent
from typing import Any, ClassVar, Literal

from pydantic import BaseModel
from rich.text import Text

from regard.render.result import Result
from regard.render.story import WIDTH, StoryBlock, rich_blocks

LETTERS = "abcdefghijklmnopqrstuvwxyz"  # of the choices of an exercise


class ChapterEntry(BaseModel):
    """A chapter in the list."""

    name: str
    title: str
    summary: str
    parts: int
    exercises: list[str]


class ProsePart(BaseModel):
    kind: Literal["prose"] = "prose"
    name: str
    heading: str
    text: str


class ComputedPart(BaseModel):
    """`blocks` is null until it is computed."""

    kind: Literal["computed"] = "computed"
    name: str
    title: str
    slow: bool
    blocks: list[StoryBlock] | None


class ViewPart(BaseModel):
    """A verb's view: `payload` is the data of its page and `text` its text in the terminal, null until computed."""

    kind: Literal["view"] = "view"
    name: str
    title: str
    slow: bool
    verb: str
    arguments: dict[str, Any]
    route: dict[str, str]
    command_line: str
    python_code: str
    payload: dict[str, Any] | None
    text: str | None


class RevealedAnswer(BaseModel):
    """`choice` counts from 0."""

    choice: int
    explanation: str


class ExercisePart(BaseModel):
    """`answer` is null until it is computed."""

    kind: Literal["exercise"] = "exercise"
    name: str
    question: str
    choices: list[str]
    slow: bool
    answer: RevealedAnswer | None


class CodePart(BaseModel):
    kind: Literal["code"] = "code"
    name: str
    title: str
    language: Literal["python", "shell"]
    code: str


LessonPart = ProsePart | ComputedPart | ViewPart | ExercisePart | CodePart


class ReadingEntry(BaseModel):
    """A paper or an article of the reading list."""

    authors: str
    title: str
    year: int
    arxiv: str
    venue: str


class Lesson(Result):
    """`chapter` is null for the list of chapters alone; then there are no parts."""

    page_view: ClassVar[str | None] = "lesson"

    chapters: list[ChapterEntry]
    chapter: str | None
    number: int | None
    title: str
    summary: str
    parts: list[LessonPart]
    reading: list[ReadingEntry]

    def to_text(self) -> str:
        return self.to_rich().plain

    def to_rich(self) -> Text:
        """The chapter, or the list of chapters, for the terminal."""
        return Text("\n\n").join(self._chapter_texts() if self.chapter is not None else self._list_texts())

    def _list_texts(self) -> Iterator[Text]:
        width = max(len(entry.name) for entry in self.chapters)
        for number, entry in enumerate(self.chapters, 1):
            line = Text(f"{number:2}  {entry.name:<{width}}  ", style="bold") + Text(entry.title, style="not bold")
            yield line + Text("\n" + indent(fill(entry.summary, WIDTH - width - 6), " " * (width + 6)), style="dim")

    def _chapter_texts(self) -> Iterator[Text]:
        yield Text(f"{self.number}. {self.title}", style="bold underline")
        yield Text(fill(self.summary, WIDTH), style="italic")
        exercises = [part for part in self.parts if isinstance(part, ExercisePart)]
        for part in self.parts:
            yield from part_texts(part, exercises)
        answered = [(number, part) for number, part in enumerate(exercises, 1) if part.answer is not None]
        if answered:
            yield Text("Answers", style="bold")
            yield from (Text(answer_text(part, f"{number}. ")) for number, part in answered)
        if self.reading:
            yield Text("Reading", style="bold")
            lines = [
                fill(citation(entry), WIDTH, initial_indent="  ", subsequent_indent="    ") for entry in self.reading
            ]
            yield Text("\n".join(lines))

    @classmethod
    def formats(cls) -> tuple[str, ...]:
        return (".html", ".ipynb", ".json")

    def _content(self, suffix: str) -> bytes:
        if suffix == ".ipynb":
            from regard.lessons.course.notebook import notebook_json

            return notebook_json(self).encode()
        return super()._content(suffix)

    def view_data(self) -> Mapping[str, object]:
        return {**self.to_dict(), "title": self.title}


def part_texts(part: LessonPart, exercises: Sequence[ExercisePart] = ()) -> Iterator[Text]:
    """A part for the terminal; `exercises` are those of the chapter, by which they are numbered."""
    match part:
        case ProsePart():
            if part.heading:
                yield Text(part.heading, style="bold")
            for paragraph in part.text.split("\n\n"):
                yield Text(fill(" ".join(paragraph.split()), WIDTH))
        case ComputedPart():
            yield Text(part.title, style="bold")
            if part.blocks is None:
                yield _not_computed(part.name)
            else:
                yield from rich_blocks(part.blocks)
        case ViewPart():
            yield Text(part.title, style="bold") + Text(f"\n$ {part.command_line}", style="dim")
            yield _not_computed(part.name) if part.text is None else Text(indent(part.text, "  "))
        case ExercisePart():
            number = f" {exercises.index(part) + 1}" if part in exercises else ""
            yield Text(f"Exercise{number}. ", style="bold") + Text(question_text(part))
        case CodePart():
            lines = indent(part.code, "$ " if part.language == "shell" else "    ")
            yield Text("\n".join(filter(None, (part.title and f"{part.title}:", lines))))


def question_text(part: ExercisePart) -> str:
    choices = [
        fill(choice, WIDTH, initial_indent=f"  {letter}) ", subsequent_indent="     ")
        for letter, choice in zip(LETTERS, part.choices, strict=False)
    ]
    return "\n".join([fill(part.question, WIDTH - 12), *choices])


def answer_text(part: ExercisePart, prefix: str = "") -> str:
    """The right choice and why it is right."""
    assert part.answer is not None
    choice = part.answer.choice
    text = f"{prefix}{LETTERS[choice]}) {part.choices[choice]}: {part.answer.explanation}"
    return fill(text, WIDTH, initial_indent="  ", subsequent_indent="     ")


def citation(entry: ReadingEntry) -> str:
    where = f"arXiv:{entry.arxiv}" if entry.arxiv else entry.venue
    return f"{entry.authors} ({entry.year}). {entry.title}. {where}".rstrip(". ") + "."


def _not_computed(name: str) -> Text:
    return Text(f"  Takes longer: add --run, or --part {name} for this part alone.", style="dim")
