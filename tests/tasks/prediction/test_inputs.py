"""The input of predictions: what is a file and what a text, rows of messy files, and wrong numbers of texts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas
import pytest

from regard.data.examples import ChoiceExample, QuestionExample, TaggedExample, TextExample
from regard.data.files import is_file_name
from regard.data.readers import TableOptions
from regard.errors import InputError
from regard.tasks.prediction.inputs import PredictionInput, open_input
from tests.tasks.prediction.models import ANSWERED, LINES, MESSY, TASKS


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    path = tmp_path / "messy.csv"
    path.write_bytes(MESSY)
    return path


def texts(inputs: PredictionInput) -> list[Any]:
    return [getattr(row.example, "text", None) for row in inputs.rows]


def test_every_row_of_a_messy_file_keeps_its_place(messy: Path) -> None:
    inputs = open_input(TASKS["classify"], messy, keep=["id", "date"])
    rows = list(inputs.rows)
    assert [row.number for row in rows] == [0, 1, 2, 3, 4]
    assert [row.line for row in rows] == LINES
    assert [row.number for row in rows if row.example is not None] == ANSWERED
    assert rows[0].example == TextExample('a fine; "good" film')
    assert rows[2].example == TextExample("so\nlong \N{GRINNING FACE}")
    assert [row.kept["date"] for row in rows][:3] == ["2024-01-02", "2024-01-03", "2024-01-04"]
    assert "semicolon-separated" in inputs.description
    assert "review" in inputs.description
    assert inputs.reopen is not None
    assert list(inputs.reopen()) == rows


def test_rows_without_a_text_can_be_skipped_or_refused(messy: Path) -> None:
    task = TASKS["classify"]
    assert [row.number for row in open_input(task, messy, table=TableOptions(missing="skip")).rows] == ANSWERED
    with pytest.raises(InputError, match=r"messy\.csv line 3 has no text"):
        list(open_input(task, messy, table=TableOptions(missing="error")).rows)


def test_all_columns_or_some_are_kept(messy: Path) -> None:
    task = TASKS["classify"]
    assert open_input(task, messy, keep=["all"]).kept == ("id", "date", "review", "stars")
    with pytest.raises(InputError, match=r"--keep: .*messy\.csv .*'dat'; did you mean 'date'"):
        open_input(task, messy, keep=["dat"])


def test_what_is_a_file_and_what_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good").write_text("a film", encoding="utf-8")
    assert is_file_name("good")  # it exists
    assert is_file_name("absent.csv")
    assert is_file_name("folder/absent")
    assert not is_file_name("bad")
    assert not is_file_name("good and/or bad")
    task = TASKS["classify"]
    assert texts(open_input(task, "good")) == ["a film"]
    assert texts(open_input(task, "bad")) == ["bad"]
    for name in ("absent.csv", "folder/absent"):
        with pytest.raises(InputError, match=f"{name}: no such file"):
            open_input(task, name)


@pytest.mark.parametrize("text", ["only one", "first\tsecond"])
@pytest.mark.parametrize("name", ["pair", "answer", "choose"])
def test_a_missing_second_text_is_an_error(name: str, text: str) -> None:
    with pytest.raises(InputError, match="This model"):
        open_input(TASKS[name], text)
    with pytest.raises(InputError):
        list(open_input(TASKS[name], [text]).rows)


def test_a_second_text_for_a_model_of_one_is_an_error() -> None:
    with pytest.raises(InputError, match="reads one text"):
        open_input(TASKS["classify"], "first", "second")
    with pytest.raises(InputError, match="one text"):
        list(open_input(TASKS["classify"], [("first", "second")]).rows)


@pytest.mark.parametrize(
    ("name", "source", "example"),
    [
        ("classify", ["a film"], TextExample("a film")),
        ("pair", [("a film", "so long")], TextExample("a film", "so long")),
        ("pair", ("a film", "so long"), TextExample("a film", "so long")),
        ("regress", ["a film"], TextExample("a film")),
        ("regress", [["a film", "so long"]], TextExample("a film", "so long")),
        ("tag", ["we see"], TaggedExample("we see", ((0, 2), (3, 6)))),
        ("answer", [("what", "the film")], QuestionExample("", "what", "the film")),
        ("choose", [("the film", "is good\nis bad\n")], ChoiceExample("the film", ("is good", "is bad"))),
    ],
)
def test_lists_of_texts_and_pairs(name: str, source: Any, example: Any) -> None:
    (row,) = open_input(TASKS[name], source).rows
    assert (row.number, row.line, row.example) == (0, None, example)


def test_records_and_data_frames_have_columns() -> None:
    records = [{"id": 1, "text": "a film", "label": "x"}, {"id": 2, "text": None, "label": "y"}]
    for source in (records, pandas.DataFrame(records)):
        inputs = open_input(TASKS["classify"], source, keep=["id"])
        assert [(row.example, row.kept["id"]) for row in inputs.rows] == [(TextExample("a film"), 1), (None, 2)]


def test_a_question_and_a_document(tmp_path: Path) -> None:
    document = tmp_path / "letter.txt"
    document.write_text("the film\nwas long\n", encoding="utf-8")
    (row,) = open_input(TASKS["answer"], "what?", document).rows
    assert row.example == QuestionExample("", "what?", "the film\nwas long")
    with pytest.raises(InputError, match="is a file"):
        open_input(TASKS["answer"], str(document), document)


def test_formats_of_their_own(tmp_path: Path) -> None:
    squad = tmp_path / "squad.json"
    question = {"id": "q1", "question": "what?", "answers": []}
    squad.write_text(json.dumps({"data": [{"paragraphs": [{"context": "the film", "qas": [question]}]}]}))
    (row,) = open_input(TASKS["answer"], squad, keep=["id"]).rows
    assert (row.example, row.kept) == (QuestionExample("q1", "what?", "the film"), {"id": "q1"})
    words = tmp_path / "words.txt"
    words.write_text("we O\nsee O\n\nit B-X\n", encoding="utf-8")
    assert texts(open_input(TASKS["tag"], words)) == ["we see", "it"]
    plain = tmp_path / "plain.txt"
    plain.write_text("we see\n\nit\n", encoding="utf-8")
    inputs = open_input(TASKS["tag"], plain)
    assert [(row.line, row.example is None) for row in inputs.rows] == [(1, False), (2, True), (3, False)]
    endings = tmp_path / "endings.jsonl"
    record = {"id": 7, "ctx": "the film", "endings": ["good", "bad"]}
    endings.write_text(json.dumps(record) + "\n", encoding="utf-8")
    for source in (endings, [record], pandas.DataFrame([record])):
        (row,) = open_input(TASKS["choose"], source, keep=["id"]).rows
        assert (row.example, row.kept) == (ChoiceExample("the film", ("good", "bad")), {"id": 7})


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="needs /dev/fd")
@pytest.mark.parametrize("name", ["classify", "tag"])
def test_a_pipe_is_read_once(name: str) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"a film\n\nbad\n")
    os.close(writer)
    inputs = open_input(TASKS[name], f"/dev/fd/{reader}")
    assert (inputs.rereadable, inputs.reopen) == (False, None)
    assert texts(inputs) == ["a film", None, "bad"]
    os.close(reader)


def test_questions_in_a_table(tmp_path: Path) -> None:
    path = tmp_path / "questions.csv"
    path.write_text("id,question,context\nq7,what?,the film\nq8,,the day\n", encoding="utf-8")
    first, second = open_input(TASKS["answer"], path, keep=["id"]).rows
    assert first.example == QuestionExample("q7", "what?", "the film")
    assert (second.example, second.kept) == (None, {"id": "q8"})
