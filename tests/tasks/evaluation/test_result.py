"""The report in the terminal, as JSON and tables, the file of errors, and the data of the page, for every task."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pandas
import pytest

from regard.errors import InputError
from regard.tasks.evaluation import result as module
from regard.tasks.evaluation.result import EvaluationResult, EvaluationView
from tests.tasks.evaluation.results import RESULTS, two_classes


@pytest.fixture(scope="module", params=list(RESULTS))
def result(request: pytest.FixtureRequest) -> EvaluationResult:
    return RESULTS[request.param]()


def test_the_text_has_every_metric_with_its_interval(result: EvaluationResult) -> None:
    text = result.to_text()
    assert text.startswith(result.finding)
    for name, value in result.metrics.items():
        low, high = result.intervals[name]
        line = next(line for line in text.splitlines() if line.startswith(f"  {name}"))
        digits = ".4g" if name in ("mae", "rmse") else ".1f"
        assert line.endswith(f"{value:{digits}} [{low:{digits}}, {high:{digits}}]")
        assert low - 1e-9 <= value <= high + 1e-9 or name == "no_answer_accuracy"
    assert max(map(len, text.splitlines())) <= 125
    assert f"line {result.errors[0].line}:" in text


def test_the_document_is_json_and_a_table(result: EvaluationResult) -> None:
    document = json.loads(result.to_json())
    assert document["metrics"] == result.metrics and len(document["errors"]) == 10
    assert document["num_errors"] == len(result._all_errors)
    frame = result.to_pandas()
    assert len(frame) == len(result.classes or result.groups or result.metrics)


def test_the_data_of_the_page(result: EvaluationResult) -> None:
    data = result.view_data()
    view = EvaluationView.model_validate({**data, "notes": []})
    assert view.data == "dev.tsv" and view.n == result.n
    assert len(view.errors) == min(result.num_errors, module.PAGE_ERRORS)
    assert len(json.dumps(data)) < 400_000


def test_errors_are_written_as_csv_and_json_lines(result: EvaluationResult, tmp_path: Path) -> None:
    result.save_errors(tmp_path / "errors.csv")
    result.save_errors(tmp_path / "errors.jsonl")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "errors.csv").read_text("utf-8"))))
    records = [json.loads(line) for line in (tmp_path / "errors.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == len(records) == result.num_errors
    first = result.errors[0]
    assert (rows[0]["row"], rows[0]["line"]) == (str(first.row), str(first.line))
    assert {**first.texts, "label": first.label, "predicted": first.predicted}.items() <= records[0].items()
    for name, text in first.texts.items():
        assert rows[0][name] == text
    frame = result.errors_to_pandas()
    assert isinstance(frame, pandas.DataFrame) and frame["row"].tolist() == [record["row"] for record in records]


def test_the_worst_errors_come_first() -> None:
    found = two_classes(top=4)
    confidences = [error.confidence for error in found._all_errors]
    assert confidences == sorted(confidences, reverse=True)  # type: ignore[type-var]
    assert len(found.errors) == 4
    assert all(error.line == error.row + 2 for error in found.errors)
    assert "true ham" in found.to_text() and "confusion matrix" in found.to_text()


def test_a_matrix_with_many_classes_is_a_list_of_confusions_in_the_terminal() -> None:
    text = RESULTS["pair"]().to_text()
    assert "most frequent confusions" in text and "confusion matrix" not in text
    assert "the 30 of 40 labels with the lowest F1" in text


def test_no_errors_are_an_empty_file() -> None:
    found = two_classes(1)
    assert found.num_errors == 0 and found.errors_file(".jsonl") == b""
    assert found.errors_file(".csv") == b"row,line,label,predicted\n"
    assert "worst" not in found.to_text()


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.csv or \.jsonl"):
        two_classes(4).save_errors(tmp_path / "errors.xlsx")


def test_the_page_has_errors_of_every_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_ERRORS", 6)
    monkeypatch.setattr(module, "PAGE_ERRORS_PER_CELL", 2)
    monkeypatch.setattr(module, "PAGE_CHARACTERS", 12)
    errors = two_classes(400).view_data()["errors"]
    assert isinstance(errors, list) and len(errors) == 6
    assert {(error["label"], error["predicted"]) for error in errors} == {("ham", "spam"), ("spam", "ham")}
    assert all(len(error["texts"]["text"]) == 12 for error in errors)
