"""`regard lesson`: the lectures as a course of ten chapters."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from regard.errors import InputError, suggest
from regard.events import Event, Progress, drain
from regard.verbs.base import Models, Request, argument, option, verb

if TYPE_CHECKING:
    from regard.lessons.course.chapter import LiveView, Part
    from regard.lessons.course.lesson import Lesson, LessonPart, ViewPart


class LessonRequest(Request):
    chapter: str | None = argument(None, help="Name or number of a chapter; without one, the list of chapters.")
    run: bool = option(False, help="Compute the slow parts as well.")
    part: str | None = option(None, help="Only this part, also if it is slow.", metavar="NAME")
    outline: bool = option(False, help="Compute nothing; only the texts, questions and code.")


def _chapters() -> dict[str, str]:
    from regard.lessons.course.course import load_chapters

    return {chapter.name: f"{chapter.title}. {chapter.summary}" for chapter in load_chapters()}


@verb(
    LessonRequest,
    result="regard.lessons.course.lesson:Lesson",
    formats=(".html", ".ipynb", ".json"),
    subcommands=("chapter", _chapters),  # with options of their own, in `regard.cli.lesson`
)
def lesson(request: LessonRequest, models: Models) -> Generator[Event, None, Lesson]:
    """Read a chapter of the course: texts, computed examples beside the lecture's numbers, exercises, code and papers.

    Without a chapter, lists them. Computed parts run with the built-in models; slow ones only with --run. A file is a
    page that works offline (.html), a notebook (.ipynb) or the data (.json).

    Example: regard lesson attention --output attention.html
    """
    from regard.lessons.course.bibliography import BIBLIOGRAPHY
    from regard.lessons.course.course import load_chapter, load_chapters
    from regard.lessons.course.lesson import ChapterEntry, Lesson, ReadingEntry

    chapters = load_chapters()
    entries = [
        ChapterEntry(name=one.name, title=one.title, summary=one.summary, parts=len(one.parts), exercises=one.exercises)
        for one in chapters
    ]
    if request.chapter is None:
        for name in ("part", "run", "outline"):
            if getattr(request, name):
                raise InputError(f"{name} needs a chapter; {suggest('', (one.name for one in chapters))}")
        summary = "The lectures, from recurrent translation to language models and what explains them."
        return Lesson(
            chapters=entries, chapter=None, number=None, title="Course", summary=summary, parts=[], reading=[]
        )
    chapter = load_chapter(request.chapter)
    parts = [part for part in chapter.parts if request.part in (None, part.name)]
    if not parts and request.part is not None:
        names = (part.name for part in chapter.parts)
        raise InputError(f"{chapter.name} has no part {request.part[:80]!r}; {suggest(request.part, names)}")
    results: list[LessonPart] = []
    for done, part in enumerate(parts):
        if len(parts) > 1 and not request.outline:
            yield Progress(stage=f"computing {chapter.title}", done=done, total=len(parts), unit="parts")
        slow = getattr(part, "slow", False)
        wanted = not request.outline and (not slow or request.run or request.part is not None)
        results.append((yield from _compute_part(part, models, wanted=wanted)))
    return Lesson(
        chapters=entries,
        chapter=chapter.name,
        number=1 + [one.name for one in chapters].index(chapter.name),
        title=chapter.title,
        summary=chapter.summary,
        parts=results,
        reading=[ReadingEntry(**BIBLIOGRAPHY[key]._asdict()) for key in chapter.reading],
    )


def _compute_part(part: Part, models: Models, *, wanted: bool) -> Generator[Event, None, LessonPart]:
    from regard.lessons.course import chapter as course
    from regard.lessons.course import lesson as result

    match part:
        case course.Prose():
            return result.ProsePart(name=part.name, heading=part.heading, text=part.text)
        case course.CodeBlock():
            return result.CodePart(name=part.name, title=part.title, language=part.language, code=part.code)
        case course.Computed():
            blocks = (yield from course.compute(part.compute, models)) if wanted else None
            return result.ComputedPart(
                name=part.name, title=part.title, slow=part.slow, blocks=None if blocks is None else list(blocks)
            )
        case course.Exercise():
            answer = None
            if wanted:
                choice, explanation = yield from course.compute(part.answer, models)
                answer = result.RevealedAnswer(choice=choice, explanation=explanation)
            return result.ExercisePart(
                name=part.name, question=part.question, choices=list(part.choices), slow=part.slow, answer=answer
            )
        case course.LiveView():
            return _run_view(part, models, wanted=wanted)


def _run_view(part: LiveView, models: Models, *, wanted: bool) -> ViewPart:
    from regard.lessons.course.lesson import ViewPart
    from regard.verbs import find

    viewed = find(part.verb)
    request = viewed.parse(part.arguments)
    payload, text = None, None
    if wanted:
        found = drain(viewed.run(request, models))  # text as it is generated would be printed before the chapter
        payload, text = found.page_data(), found.to_text()
    return ViewPart(
        name=part.name,
        title=part.title or viewed.help.partition("\n")[0],
        slow=part.slow,
        verb=part.verb,
        arguments=dict(part.arguments),
        route=dict(part.route),
        command_line=viewed.command_line(request),
        python_code=viewed.python_code(request),
        payload=payload,
        text=text,
    )
