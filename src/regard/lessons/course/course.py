"""The ten chapters in the order of the lectures; each is imported when it is needed."""

from __future__ import annotations

from importlib import import_module

from regard.errors import InputError, suggest
from regard.lessons.course.chapter import Chapter

CHAPTERS = (
    "recurrent-translation",
    "attention",
    "elmo",
    "self-attention",
    "transformer",
    "decoding",
    "bert",
    "fine-tuning",
    "gpt",
    "what-models-learn",
)


def load_chapter(name: str) -> Chapter:
    """The chapter of a name, or of its number from 1."""
    if name.isdecimal() and 1 <= int(name) <= len(CHAPTERS):
        name = CHAPTERS[int(name) - 1]
    if name not in CHAPTERS:
        raise InputError(f"there is no chapter {name[:80]!r}; {suggest(name, CHAPTERS)}")
    module = import_module(f"regard.lessons.course.chapters.{name.replace('-', '_')}")
    chapter: Chapter = module.CHAPTER
    return chapter


def load_chapters() -> list[Chapter]:
    return [load_chapter(name) for name in CHAPTERS]
