"""The page of an evaluation in a browser: its numbers, the selection of errors, the threshold; and the studio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.tasks.fine_tuned_model import save_fine_tuned
from regard.text import Tokenizer
from tests.interpret.classifiers import deciding, sentence
from tests.tasks.evaluation.results import RESULTS, two_classes

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, expect

from tests.server.conftest import serious_findings

expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def folders(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("classifiers") / "task"
    save_fine_tuned(deciding(Tokenizer.open(tiny_bert_folder), 3), folder)
    return {"classifier": str(folder)}


@pytest.fixture
def report(page_built: None, tmp_path: Path) -> str:
    path = tmp_path / "page.html"
    two_classes().save(path)
    return path.as_uri()


def test_metrics_and_the_matrix_equal_the_result(page: Page, report: str) -> None:
    found = two_classes()
    page.goto(report)
    expect(page.locator(".finding")).to_contain_text(found.finding)
    metrics = page.locator(".evaluation-metrics li")
    expect(metrics).to_have_count(len(found.metrics))
    low, high = found.intervals["accuracy"]
    expect(metrics.first).to_contain_text(f"{found.metrics['accuracy']:.1f}")
    expect(metrics.first).to_contain_text(f"95%: {low:.1f} to {high:.1f}")
    assert found.confusion_matrix is not None
    counts = page.locator(".evaluation-matrix tbody td").all_inner_texts()
    assert [int(text) for text in counts] == [count for row in found.confusion_matrix.counts for count in row]


def test_a_cell_selects_its_errors_and_a_search_narrows_them(page: Page, report: str) -> None:
    found = two_classes()
    page.goto(report)
    items = page.locator(".evaluation-errors li")
    expect(items.first).to_contain_text(found.errors[0].texts["text"])
    wrong = [error for error in found._all_errors if (error.label, error.predicted) == ("spam", "ham")]
    page.get_by_role("button", name="errors: true spam, predicted ham").click()
    expect(items).to_have_count(len(wrong))
    expect(items.first).to_contain_text(f"predicted ham {wrong[0].confidence:.1%}")
    page.get_by_role("searchbox", name="Search").fill(f"line {wrong[-1].line}")
    expect(items).to_have_count(sum(str(error.line).startswith(str(wrong[-1].line)) for error in wrong))
    expect(items.last).to_contain_text(wrong[-1].texts["text"])
    page.get_by_role("button", name="Show the errors of all cells").click()
    page.get_by_role("searchbox", name="Search").fill("")
    expect(page.locator(".evaluation-errors [role=status]")).to_have_text(f"{found.num_errors} errors")


def test_the_threshold_recomputes_the_scores(page: Page, report: str) -> None:
    curve = two_classes().thresholds[0]
    page.goto(report)
    section = page.locator("section[aria-labelledby=evaluation-threshold]")
    slider = section.get_by_role("slider")
    half = sum(threshold >= 0.5 for threshold in curve.thresholds) - 1
    for index, action in (
        (half, None),
        (curve.thresholds.index(curve.best_threshold), lambda: section.get_by_role("button", name="Best F1").click()),
        (0, lambda: slider.press("End")),
    ):
        if action is not None:
            action()
        expect(section.locator("output")).to_have_text(f"{curve.thresholds[index]:.3f}")
        facts = section.locator(".evaluation-facts").first
        for values in (curve.precision, curve.recall, curve.f1):
            expect(facts).to_contain_text(f"{values[index]:.1f}")
        expect(section).to_contain_text(
            f"{curve.true_positives[index]} rightly, {curve.false_positives[index]} wrongly"
        )


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [(name, *((1280, "light"), (390, "dark"))[number % 2]) for number, name in enumerate(sorted(RESULTS))],
)
def test_the_page_is_accessible_and_fits_a_narrow_screen(
    page_built: None, browser: Browser, tmp_path: Path, name: str, width: int, scheme: Any, axe: str
) -> None:
    result = RESULTS[name]()
    result.save(tmp_path / "page.html")
    errors: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "page.html").as_uri())
    expect(page.locator(".finding")).to_contain_text(result.finding)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert serious_findings(page, axe) == []
    assert errors == []
    page.close()


def test_the_studio_evaluates_pasted_examples(page: Page, address: str) -> None:
    rows = [sentence(number) for number in range(12)]
    page.goto(f"{address}/#evaluation")
    expect(page.get_by_role("status").filter(has_text="Paste labeled examples")).to_be_visible()
    page.locator("textarea[name=data]").fill("\n".join("\t".join(row) for row in rows))
    page.get_by_role("button", name="Evaluate").click()
    expect(page.locator(".finding")).to_contain_text("100.0% of 12 examples are classified correctly")
    page.locator("input[type=file]").set_input_files(
        {
            "name": "more.tsv",
            "mimeType": "text/plain",
            "buffer": "\n".join("\t".join(sentence(number)) for number in range(20)).encode(),
        }
    )
    expect(page.locator(".finding")).to_contain_text("of 20 examples")


def test_drawings_and_tables_of_every_task(page_built: None, tmp_path: Path) -> None:
    for name, make in RESULTS.items():
        result = make()
        result.save(tmp_path / f"{name}.svg")
        assert result.finding[:30] in (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
