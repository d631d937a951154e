"""A chapter as a Jupyter notebook (nbformat 4): texts, cells that run, and what they computed when it was written."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from regard.lessons.course.lesson import (
    LETTERS,
    CodePart,
    ComputedPart,
    ExercisePart,
    Lesson,
    LessonPart,
    ProsePart,
    ViewPart,
    citation,
)
from regard.render.story import FigureRow, Paragraph, Section, StoryBlock, StoryTable, rich_blocks


def notebook_json(lesson: Lesson) -> str:
    """The notebook's file."""
    cells = [_with_id(number, cell) for number, cell in enumerate(_cells(lesson))]
    notebook = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _cells(lesson: Lesson) -> Iterator[dict[str, Any]]:
    yield _markdown(f"# {lesson.title}\n\n{lesson.summary}")
    if lesson.chapter is None:
        rows = [f"{number}. **{entry.title}** (`{entry.name}`): {entry.summary}" for number, entry in _numbered(lesson)]
        yield _markdown("\n".join(rows))
        return
    yield _code("import regard")
    for part in lesson.parts:
        yield from _part_cells(part, lesson.chapter)
    if lesson.reading:
        yield _markdown("## Reading\n\n" + "\n".join(f"- {citation(entry)}" for entry in lesson.reading))


def _numbered(lesson: Lesson) -> Iterator[tuple[int, Any]]:
    return enumerate(lesson.chapters, 1)


def _part_cells(part: LessonPart, chapter: str) -> Iterator[dict[str, Any]]:
    call = f"regard.lesson({chapter!r}, part={part.name!r})"
    match part:
        case ProsePart():
            yield _markdown(f"## {part.heading}\n\n{part.text}" if part.heading else part.text)
        case ComputedPart():
            yield _markdown(f"### {part.title}")
            if part.blocks is None:
                yield _code(call)
            else:
                plain = Text("\n\n").join(rich_blocks(part.blocks)).plain
                yield _code(call, plain, "\n".join(_html(part.blocks)))
        case ViewPart():
            yield _markdown(f"### {part.title}")
            yield _code(part.python_code.partition("\n\n")[2], part.text)
        case ExercisePart():
            choices = "\n".join(
                f"- **{letter})** {choice}" for letter, choice in zip(LETTERS, part.choices, strict=False)
            )
            yield _markdown(f"**Exercise.** {part.question}\n\n{choices}\n\nPredict, then run the cell for the answer.")
            yield _code(f"print({call})")
        case CodePart():
            if part.title:
                yield _markdown(part.title)
            yield _code(
                "\n".join("!" + line for line in part.code.splitlines()) if part.language == "shell" else part.code
            )


def _html(blocks: Sequence[StoryBlock]) -> Iterator[str]:
    """Tables as tables, everything else as the terminal shows it."""
    for block in blocks:
        match block:
            case Paragraph():
                yield f"<p>{html.escape(block.text)}</p>"
            case Section():
                yield f"<h4>{html.escape(block.heading)}</h4>"
                yield from _html(block.blocks)
            case FigureRow():
                yield from _html(block.blocks)
            case StoryTable():
                header = "".join(f"<th>{html.escape(text)}</th>" for text in block.headers)
                rows = ["".join(f"<td>{html.escape(text)}</td>" for text in row) for row in block.rows]
                caption = f"<caption>{html.escape(block.caption)}</caption>" if block.caption else ""
                body = "".join(f"<tr>{row}</tr>" for row in rows)
                yield f"<table>{caption}<thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"
            case _:
                yield f"<pre>{html.escape(Text(chr(10)).join(rich_blocks([block])).plain)}</pre>"


def _markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(source: str, plain: str | None = None, page: str | None = None) -> dict[str, Any]:
    data = {"text/plain": plain, **({"text/html": page} if page else {})}
    output = {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data}
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [] if plain is None else [output],
        "source": source,
    }


def _with_id(number: int, cell: dict[str, Any]) -> dict[str, Any]:
    """Cells of nbformat 4.5 have an id; the same cell has the same one in every file."""
    return {"id": hashlib.sha256(f"{number}:{cell['source']}".encode()).hexdigest()[:12], **cell}
