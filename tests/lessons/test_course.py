"""Every chapter of the course: its parts compute, its answers are valid, its code runs, no result is written down."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.cli.app import run
from regard.errors import InputError
from regard.events import drain
from regard.lessons.course import table
from regard.lessons.course.bibliography import BIBLIOGRAPHY
from regard.lessons.course.chapter import Chapter, CodeBlock, DeckRow, Prose, beside_deck
from regard.lessons.course.course import CHAPTERS, load_chapter, load_chapters
from regard.lessons.course.lesson import ComputedPart, ExercisePart, Lesson, LessonPart, ViewPart
from regard.lessons.course.notebook import notebook_json
from regard.lessons.course.syllabus import SECTIONS, SYLLABUS
from regard.render.story import FigureRow, Section, StoryBlock, StoryTable
from regard.verbs.lesson import lesson
from regard.verbs.python import LocalModels

ROOT = Path(__file__).resolve().parents[2]
# A decimal number or a percentage: what a result looks like.
RESULT = re.compile(r"\d+\.\d+|\d+\s?%|\bpercent\b")
QUOTED = re.compile(r"\b(decks?|lectures?|papers?|prints?|published|reports?)\b", re.IGNORECASE)
SLOW = [
    (name, part.name)
    for name in CHAPTERS
    for part in load_chapter(name).parts
    if getattr(part, "slow", False) and not isinstance(part, CodeBlock)
]


@pytest.fixture(scope="session")
def models() -> LocalModels:
    return LocalModels("cpu")


def read(models: LocalModels, **arguments: object) -> Lesson:
    found = drain(lesson.run(lesson.parse(arguments), models))
    assert isinstance(found, Lesson)
    return found


def check_part(part: LessonPart) -> None:
    """What is computed is complete."""
    match part:
        case ComputedPart():
            assert part.blocks, f"{part.name} has no blocks"
        case ViewPart():
            assert part.payload is not None and part.payload["view"] and part.text, part.name
        case ExercisePart():
            assert part.answer is not None and part.answer.explanation, part.name
            assert 0 <= part.answer.choice < len(part.choices), part.name


def blocks_in(blocks: list[StoryBlock]) -> Iterator[StoryBlock]:
    for block in blocks:
        yield block
        if isinstance(block, Section | FigureRow):
            yield from blocks_in(list(block.blocks))


def test_chapters_are_listed_without_torch() -> None:
    code = (
        "import sys; from regard.lessons.course.course import load_chapters; load_chapters(); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.long
@pytest.mark.parametrize("name", CHAPTERS)
def test_chapter_computes(name: str, models: LocalModels) -> None:
    """All parts but the slow ones; the terminal, the page and the notebook show them."""
    chapter, found = load_chapter(name), read(models, chapter=name)
    assert [part.name for part in found.parts] == [part.name for part in chapter.parts]
    for part in found.parts:
        if (name, part.name) not in SLOW:
            check_part(part)
    text = found.to_text()
    assert chapter.title in text and all(BIBLIOGRAPHY[key].title.split()[0] in text for key in chapter.reading)
    tables = [
        block
        for part in found.parts
        if isinstance(part, ComputedPart) and part.blocks
        for block in blocks_in(part.blocks)
        if isinstance(block, StoryTable)
    ]
    errata = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    for erratum in re.findall(r"erratum (P\d+)", json.dumps([list(map(list, one.rows)) for one in tables])):
        assert f"| {erratum} |" in errata
    for cell in json.loads(notebook_json(found))["cells"]:
        if cell["cell_type"] == "code" and not cell["source"].startswith("!"):
            compile(cell["source"], name, "exec")


@pytest.mark.slow
@pytest.mark.parametrize(("chapter", "part"), SLOW)
def test_slow_part_computes(chapter: str, part: str, models: LocalModels) -> None:
    (found,) = read(models, chapter=chapter, part=part).parts
    check_part(found)


def run_code(part: CodeBlock) -> None:
    if part.language == "python":
        exec(compile(part.code, part.name, "exec"), {"__name__": "__main__"})
        return
    for line in part.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == "regard" and not set("|<>&;") & set(line):  # in this process, where torch is imported
            assert run(words[1:]) == 0, line
        else:
            subprocess.run(line, shell=True, check=True, stdout=subprocess.DEVNULL)


def code_blocks(*, slow: bool) -> list[tuple[str, str]]:
    return [
        (name, part.name)
        for name in CHAPTERS
        for part in load_chapter(name).parts
        if isinstance(part, CodeBlock) and part.slow is slow
    ]


@pytest.mark.parametrize(
    ("chapter", "name"),
    [*code_blocks(slow=False), *(pytest.param(*one, marks=pytest.mark.slow) for one in code_blocks(slow=True))],
)
def test_code_runs(chapter: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (part,) = [one for one in load_chapter(chapter).parts if one.name == name]
    assert isinstance(part, CodeBlock)
    with contextlib.redirect_stdout(io.StringIO()):
        run_code(part)


@pytest.mark.parametrize("name", CHAPTERS)
def test_prose_has_no_results(name: str) -> None:
    """A sentence with a decimal number or a percentage quotes a lecture or a paper."""
    chapter = load_chapter(name)
    texts = [part.text for part in chapter.parts if isinstance(part, Prose)]
    for sentence in (one for text in [chapter.summary, *texts] for one in re.split(r"(?<=[.?!])\s+", text)):
        assert not RESULT.search(sentence) or QUOTED.search(sentence), sentence


def test_names_and_papers() -> None:
    chapters = load_chapters()
    assert [chapter.name for chapter in chapters] == list(CHAPTERS)
    assert len({chapter.title for chapter in chapters}) == len(CHAPTERS)
    for paper in BIBLIOGRAPHY.values():
        assert re.fullmatch(r"\d{4}\.\d{4,5}|[a-z]+/\d{7}", paper.arxiv) or (paper.venue and not paper.arxiv), paper
    assert load_chapter("2") is load_chapter("attention")
    with pytest.raises(InputError, match="did you mean 'attention'"):
        load_chapter("atention")


def test_a_chapter_refuses_names_that_are_used_twice_and_unknown_keys() -> None:
    for parts, reading in (
        ((Prose("a", name="one"), Prose("b", name="one")), ()),
        ((Prose("a", name="Not a name"),), ()),
        ((Prose("a", spec=("Z9",)),), ()),
        ((), ("nobody1999",)),
    ):
        with pytest.raises(ValueError, match="test: "):
            Chapter(name="test", title="Test", summary="", parts=parts, reading=reading)


def test_the_decks_numbers_stand_beside_ours() -> None:
    found = beside_deck([DeckRow("accuracy", "98.125", "97.9", "per token", "P13"), DeckRow("units", "16", "16")])
    assert list(found.headers) == ["quantity", "deck", "ours", "note"]
    assert [list(row) for row in found.rows] == [
        ["accuracy", "98.125", "97.9", "per token; erratum P13"],
        ["units", "16", "16", ""],
    ]


def test_the_outline_computes_nothing(models: LocalModels) -> None:
    for name in CHAPTERS:
        for part in read(models, chapter=name, outline=True).parts:
            assert getattr(part, "blocks", None) is None
            assert getattr(part, "payload", None) is None
            assert getattr(part, "answer", None) is None


def test_a_part_needs_a_chapter(models: LocalModels) -> None:
    with pytest.raises(InputError, match="part needs a chapter"):
        read(models, part="scores")


def test_the_syllabus_is_complete() -> None:
    assert len([item for item in SYLLABUS if item[0] != "P"]) == 110  # and the errata
    assert {item[0] for item in SYLLABUS} == set(SECTIONS)


def test_every_item_of_the_lectures_has_a_part() -> None:
    assert [item for item, parts in table.parts_by_item().items() if not parts] == []


def test_the_table_of_the_documentation_is_fresh() -> None:
    document = (ROOT / "docs" / "course.md").read_text(encoding="utf-8")
    assert table.updated(document) == document, "run python -m regard.lessons.course.table"
