"""A model is evaluated through `regard evaluate` and `regard.evaluate`: the files it writes, and what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas
import pytest

import regard
from regard.cli.app import run
from regard.data.examples import TextExample
from regard.errors import InputError
from regard.events import Event, Progress
from regard.tasks.fine_tuned_model import load_fine_tuned, save_fine_tuned
from regard.text import Tokenizer
from tests.interpret.classifiers import deciding, sentence


@pytest.fixture(scope="module")
def model(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("classifier") / "task"
    save_fine_tuned(deciding(Tokenizer.open(tiny_bert_folder), 3), folder)
    return str(folder)


@pytest.fixture
def labeled(tmp_path: Path) -> Path:
    """Thirty sentences with labels; those of lines 5 and 12 are wrong."""
    other = {"negative": "positive", "positive": "negative"}
    rows = [sentence(number) for number in range(30)]
    rows = [(text, other[label] if number in (3, 10) else label) for number, (text, label) in enumerate(rows)]
    path = tmp_path / "labeled.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    return path


def test_the_command_writes_a_report_and_the_errors(
    page_built: None, model: str, labeled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, errors = tmp_path / "page.html", tmp_path / "errors.csv"
    files = ["--report", str(report), "--errors", str(errors)]
    assert run(["evaluate", model, "--data", str(labeled), *files, "--top", "1"]) == 0
    printed = capsys.readouterr()
    assert "accuracy              93.3 [" in printed.out
    assert "2 errors" in printed.err and str(report) in printed.err
    rows = list(csv.DictReader(errors.open(encoding="utf-8")))
    assert {row["line"] for row in rows} == {"5", "12"} and {row["row"] for row in rows} == {"3", "10"}
    assert float(rows[0]["confidence"]) >= float(rows[1]["confidence"]) > 0.5
    assert float(rows[0]["confidence"]) + float(rows[0]["probability"]) == pytest.approx(1)
    page = report.read_text(encoding="utf-8")
    assert '"view":"evaluation"' in page.replace(": ", ":") and "93.3% of 30 examples" in page


def test_python_gives_the_same_as_the_command(model: str, labeled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events: list[Event] = []
    found = regard.evaluate(model, data=labeled, on_event=events.append)
    assert run(["evaluate", model, "--data", str(labeled), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found.to_dict()
    progress = [event for event in events if isinstance(event, Progress)]
    assert (progress[0].done, progress[-1].done, progress[-1].total) == (0, 30, 30)
    assert found.metrics["accuracy"] == pytest.approx(100 * 28 / 30)
    assert found.errors_to_pandas()["line"].tolist() == [error.line for error in found.errors]


def test_the_seed_is_that_of_the_intervals(model: str, labeled: Path) -> None:
    first, again, other = (regard.evaluate(model, data=labeled, seed=seed) for seed in (1, 1, 2))
    assert first.intervals == again.intervals != other.intervals
    assert first.metrics == other.metrics


def test_an_unknown_label_is_refused_with_its_line(model: str, labeled: Path) -> None:
    with labeled.open("a", encoding="utf-8") as file:
        file.write("a good day\tneutral\n")
    with pytest.raises(InputError, match="line 32: the label 'neutral' does not occur"):
        regard.evaluate(model, data=labeled)


def test_missing_labels_are_refused_or_skipped(model: str, labeled: Path) -> None:
    with labeled.open("a", encoding="utf-8") as file:
        file.write("a good day\t\n")
    with pytest.raises(InputError, match="line 32 has no label"):
        regard.evaluate(model, data=labeled)
    notes: list[str] = []
    found = regard.evaluate(
        model, data=labeled, missing="skip", on_event=lambda event: notes.append(event.line() or "")
    )
    assert found.n == 30
    assert any("1 left out" in note for note in notes)


@pytest.mark.parametrize(
    ("option", "name", "expected"),
    [("report", "page.pdf", "ends in .html"), ("errors", "errors.xlsx", ".csv or .jsonl")],
)
def test_files_that_cannot_be_written_are_refused_first(
    model: str, labeled: Path, tmp_path: Path, option: str, name: str, expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        regard.evaluate(model, data=labeled, **{option: tmp_path / name})
    events: list[Event] = []
    path = tmp_path / "nowhere" / f"x.{'html' if option == 'report' else 'csv'}"
    with pytest.raises(InputError, match="nowhere"):
        regard.evaluate(model, data=labeled, **{option: path}, on_event=events.append)
    assert not events


def test_data_frames_lists_and_examples_give_what_a_file_gives(model: str, labeled: Path) -> None:
    expected = regard.evaluate(model, data=labeled)
    frame = pandas.read_csv(labeled, sep="\t")
    frame.insert(0, "id", range(100, 130))
    pairs = list(zip(frame["text"], frame["label"], strict=True))
    for data in (frame, pairs, frame[["text", "label"]].to_dict("records"), labeled.read_text().splitlines()):
        options = {"columns": ["text", "label"]} if data is frame else {}
        found = regard.evaluate(model, data=data, **options)
        assert (found.metrics, found.intervals) == (expected.metrics, expected.intervals)
        assert [error.row for error in found.errors] == [error.row for error in expected.errors]
    fine_tuned = load_fine_tuned(model)
    for data in (frame[["text", "label"]], pairs, [TextExample(text, label=label) for text, label in pairs], labeled):
        assert fine_tuned.evaluate(data).metrics == expected.metrics
    assert "--data FILE" in regard.evaluate(model, data=pairs).page_data()["cli"]  # type: ignore[operator]


def test_rows_of_a_frame_that_are_skipped_do_not_shift_the_others(model: str, labeled: Path) -> None:
    frame = pandas.read_csv(labeled, sep="\t")
    frame.loc[0, "label"] = None
    found = regard.evaluate(model, data=frame, missing="skip")
    assert {(error.row, error.line) for error in found.errors} == {(3, None), (10, None)}
    with pytest.raises(InputError, match="row 1 has no label"):
        regard.evaluate(model, data=frame)
