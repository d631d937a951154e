"""The Learn page: a walk through every chapter, exercises, presentation, slow and failing parts, exported chapters."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette

import regard
from regard.errors import InputError
from regard.events import Event, Progress
from regard.lessons.course.course import CHAPTERS, load_chapter
from regard.lessons.course.lesson import (
    ChapterEntry,
    CodePart,
    ComputedPart,
    ExercisePart,
    Lesson,
    LessonPart,
    ProsePart,
    ReadingEntry,
    RevealedAnswer,
)
from regard.render.story import BarChart, Diagram, DiagramArrow, DiagramBox, NumberMatrix, Paragraph, StoryTable
from regard.server.models.verb_job import VerbJob
from tests.server.conftest import create_app, expect_url, resize, serious_findings, watched
from tests.server.local import stub_registry

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SIZES = ((390, 844), (1280, 720), (1920, 1080))


@pytest.fixture(scope="module")
def folders() -> dict[str, str]:
    """The models of a studio of its own: chapters load further ones, and views would open on those."""
    return {"bert": "regard-bert"}


@pytest.fixture
def course_page(address: str, browser: Browser) -> Iterator[Page]:
    """The list of chapters."""
    with watched(browser, seconds=120) as page:
        page.goto(f"{address}/#learn")
        page.get_by_role("heading", name="Learn", exact=True).wait_for()
        yield page


def is_slow(part: object) -> bool:
    return bool(getattr(part, "slow", False))


@pytest.mark.long
@pytest.mark.parametrize("name", CHAPTERS)
def test_walk_through_the_course(name: str, course_page: Page) -> None:
    """Every part that is not slow is computed when it comes into view; every exercise reveals its computed answer."""
    page, chapter, number = course_page, load_chapter(name), CHAPTERS.index(name) + 1
    page.get_by_role("link", name=chapter.title).first.click()
    page.get_by_role("heading", name=chapter.title, exact=True).wait_for()
    assert page.get_by_text(f"Chapter {number} of {len(CHAPTERS)}").is_visible()
    for part in chapter.parts:
        section = page.locator(f"#part-{part.name}")
        section.scroll_into_view_if_needed()
        if part.name in chapter.exercises:
            if not is_slow(part):
                answer_exercise(page, name, part.name)
        elif is_slow(part):
            assert section.get_by_role("button", name="Run", exact=True).is_visible() or section.locator("pre").count()
        else:
            page.locator(f"#part-{part.name}:is([data-state=done], [data-state=failed])").wait_for()
            assert section.get_attribute("data-state") == "done", section.inner_text()
            if section.locator("iframe").count():
                section.frame_locator("iframe").locator("main > :not(.headline)").first.wait_for()
    assert page.locator(".reading-part li").count() == len(chapter.reading)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


SLOW_PARTS = [(name, part.name) for name in CHAPTERS for part in load_chapter(name).parts if is_slow(part)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "part"), SLOW_PARTS)
def test_slow_parts_of_the_course(name: str, part: str, course_page: Page) -> None:
    """A slow part is computed on request, and a slow exercise reveals its answer as the others do."""
    page, chapter = course_page, load_chapter(name)
    page.set_default_timeout(1_500_000)
    page.get_by_role("link", name=chapter.title).first.click()
    section = page.locator(f"#part-{part}")
    section.scroll_into_view_if_needed()
    if part in chapter.exercises:
        answer_exercise(page, name, part)
    elif section.get_by_role("button", name="Run", exact=True).count():
        section.get_by_role("button", name="Run", exact=True).click()
        page.locator(f"#part-{part}:is([data-state=done], [data-state=failed])").wait_for()
        assert section.get_attribute("data-state") == "done", section.inner_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CHAPTERS)
def test_chapters_are_accessible(name: str, course_page: Page, axe: str) -> None:
    page, chapter = course_page, load_chapter(name)
    page.get_by_role("link", name=chapter.title).first.click()
    for part in chapter.parts:
        page.locator(f"#part-{part.name}").scroll_into_view_if_needed()
        if not is_slow(part) and part.name not in chapter.exercises:
            page.locator(f"#part-{part.name}:not([data-state=computing])").wait_for()
    check_sizes(page, axe)


def answer_exercise(page: Page, chapter: str, name: str) -> None:
    """Press the first choice: what is revealed is what the verb computes."""
    section = page.locator(f"#part-{name}")
    assert section.locator(".reveal p").count() == 0
    section.locator(".predictions button").first.click()
    section.locator(".reveal strong").wait_for()
    address = page.url.partition("#")[0]
    found = page.request.post(f"{address}v1/lesson", data={"chapter": chapter, "part": name}).json()
    answer = found["parts"][0]["answer"]
    assert answer["explanation"].replace("`", "") in section.locator(".reveal").inner_text()
    marks = [one.get_attribute("class") for one in section.locator(".predictions button").all()]
    assert marks.index("right") == answer["choice"]


@pytest.mark.long
def test_the_list_remembers_what_was_answered(course_page: Page, axe: str) -> None:
    page, chapter = course_page, load_chapter(CHAPTERS[0])
    exercise = next(part for part in chapter.parts if part.name in chapter.exercises and not is_slow(part))
    page.get_by_role("link", name=chapter.title).first.click()
    page.locator(f"#part-{exercise.name}").scroll_into_view_if_needed()
    answer_exercise(page, CHAPTERS[0], exercise.name)
    page.get_by_role("link", name="All chapters").click()
    page.get_by_role("heading", name="Learn", exact=True).wait_for()
    exercises = sum(len(load_chapter(name).exercises) for name in CHAPTERS)
    page.get_by_text(f"1 of {exercises} exercises answered.").wait_for()
    page.reload()
    page.get_by_text(f"1 of {exercises} exercises answered.").wait_for()
    check_sizes(page, axe)


def check_sizes(page: Page, axe: str) -> None:
    """No serious accessibility fault and no sideways scrolling at three widths, light and dark."""
    for width, height in SIZES:
        resize(page, width, height)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert serious_findings(page, axe) == [], (width, scheme)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")


# A small course whose computations are defined here.
PARTS: dict[str, LessonPart] = {
    part.name: part
    for part in (
        ProsePart(name="text", heading="A heading", text="A `code` word.\n\nA second paragraph."),
        ComputedPart(
            name="quick",
            title="A quick part",
            slow=False,
            blocks=[
                Paragraph(text="The quick result."),
                StoryTable(headers=["a", "note"], rows=[["1", "some words"]], text_columns=[1]),
                BarChart.of_probabilities("Bars", [("the", 0.5), ("cat", 0.25)]),
                NumberMatrix(title="Numbers", values=[[1.5, -2]], rows=["row"], columns=["x", "y"]),
                Diagram(
                    title="Boxes",
                    boxes=[
                        DiagramBox(key="a", text="encoder", column=0, row=0),
                        DiagramBox(key="b", text="decoder", column=1, row=0),
                    ],
                    arrows=[DiagramArrow(start="a", end="b")],
                ),
            ],
        ),
        ProsePart(name="filler", heading="Far below", text="\n\n".join(["A line."] * 60)),
        ComputedPart(name="slow", title="A slow part", slow=True, blocks=[Paragraph(text="The slow result.")]),
        ComputedPart(name="failing", title="A part that fails", slow=False, blocks=[Paragraph(text="At last.")]),
        ExercisePart(
            name="ask",
            question="Which?",
            choices=["this", "that"],
            slow=False,
            answer=RevealedAnswer(choice=1, explanation="It is `that`."),
        ),
        CodePart(name="lines", title="", language="shell", code="regard lesson"),
    )
}
HIDDEN = {"computed": {"blocks": None}, "exercise": {"answer": None}}


def small_lesson(parts: list[LessonPart]) -> Lesson:
    return Lesson(
        chapters=[ChapterEntry(name="small", title="A small chapter", summary="", parts=7, exercises=["ask"])],
        chapter="small",
        number=1,
        title="A small chapter",
        summary="For this test.",
        parts=parts,
        reading=[ReadingEntry(authors="Somebody", title="A Paper", year=2020, arxiv="2001.00001", venue="")],
    )


@pytest.fixture(scope="module")
def requested() -> list[str]:
    """The parts that the page has asked for."""
    return []


@pytest.fixture(scope="module")
def small_course(page_built: None, run_app: Callable[[Starlette], str], requested: list[str]) -> str:
    """The address of a studio with the small course; the failing part fails once."""
    failures = {"failing"}

    def run(host: VerbJob, name: str, arguments: Mapping[str, Any]) -> Generator[Event, None, Lesson]:
        assert name == "lesson"
        if "part" not in arguments:
            return small_lesson([part.model_copy(update=HIDDEN.get(part.kind, {})) for part in PARTS.values()])
        part = str(arguments["part"])
        requested.append(part)
        yield Progress(stage="training", done=1, total=2, unit="epochs")
        if part in failures:
            failures.remove(part)
            raise InputError("this cannot be computed now")
        return small_lesson([PARTS[part]])

    return run_app(create_app(stub_registry(run)))


@pytest.mark.long
def test_parts_load_when_they_come_into_view(
    small_course: str, requested: list[str], browser: Browser, axe: str
) -> None:
    requested.clear()
    with watched(browser) as page:
        page.goto(f"{small_course}/#learn?chapter=small")
        page.get_by_text("The quick result.").wait_for()
        assert requested == ["quick"]
        assert page.locator("#part-text code").inner_text() == "code"
        page.locator("#part-slow").scroll_into_view_if_needed()
        page.get_by_text("this cannot be computed now").wait_for()
        page.locator("#part-failing").get_by_role("button", name="Try again").click()
        page.get_by_text("At last.").wait_for()
        assert requested == ["quick", "failing", "failing"]
        page.get_by_role("button", name="Run", exact=True).click()
        page.get_by_text("The slow result.").wait_for()
        answer = page.locator("#part-ask")
        answer.get_by_role("button", name="this", exact=True).press("Enter")
        answer.get_by_text("Not quite: that. It is that.").wait_for()
        assert requested[3:] == ["slow", "ask"]
        assert page.get_by_text("arXiv:2001.00001").is_visible()
        check_sizes(page, axe)
        requested.clear()
        page.goto(f"{small_course}/#learn")  # what was computed is kept
        page.goto(f"{small_course}/#learn?chapter=small")
        page.get_by_text("The quick result.").wait_for()
        assert requested == []


def test_presentation(small_course: str, browser: Browser, axe: str) -> None:
    with watched(browser) as page:
        page.goto(f"{small_course}/#learn?chapter=small")
        page.get_by_role("button", name="Present").click()
        page.locator("[data-step='0']").wait_for()
        assert page.locator(".presentation h1").inner_text() == "A small chapter"
        page.keyboard.press("ArrowRight")
        page.keyboard.press("PageDown")
        page.get_by_text("The quick result.").wait_for()
        expect_url(page, "present=1&step=2")
        assert page.locator("form").count() == 0
        assert page.evaluate("parseFloat(getComputedStyle(document.querySelector('.presentation p')).fontSize)") > 20
        assert serious_findings(page, axe) == []
        page.reload()  # the step is in the address
        page.get_by_text("The quick result.").wait_for()
        page.keyboard.press("ArrowLeft")
        page.get_by_text("A second paragraph.").wait_for()
        page.keyboard.press("End")
        page.get_by_text("A Paper").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Present").wait_for()
        expect_url(page, absent="present")


@pytest.mark.usefixtures("page_built")
def test_an_exported_chapter_works_offline(browser: Browser, tmp_path: Path) -> None:
    """Its views, exercises and presentation need no server."""
    name = "self-attention"
    file = tmp_path / "chapter.html"
    lesson = regard.lesson(name)
    lesson.save(file)
    with watched(browser, seconds=60) as page:
        page.context.set_offline(True)
        page.goto(file.as_uri())
        page.get_by_role("heading", name=lesson.title, exact=True).wait_for()
        for part in lesson.parts:
            section = page.locator(f"#part-{part.name}")
            if part.kind == "exercise" and part.answer is not None:
                section.locator(".predictions button").nth(part.answer.choice).click()
                section.get_by_text("Right.").wait_for()
                assert part.answer.explanation.replace("`", "") in section.inner_text()
            elif part.kind == "view" and part.payload is not None:
                section.scroll_into_view_if_needed()
                section.frame_locator("iframe").locator("main > :not(.headline)").first.wait_for()
            elif part.kind == "computed" and part.blocks is not None:
                assert section.locator(".story *").count() > 0
        page.get_by_role("button", name="Present").click()
        page.keyboard.press("ArrowRight")
        page.locator("[data-step='1']").wait_for()
