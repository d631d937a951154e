"""Question answering: SQuAD versions, misplaced answers, and unlabeled rows."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.data.examples import Answer, QuestionExample
from regard.data.readers import TableOptions, read_question_examples
from regard.errors import InputError

MISPLACED = "answer does not match the context at its offset"
UNANSWERED = "question has no answer left"
CONTEXT = "Oslo lies in Norway. Rome lies in Italy."


@pytest.mark.parametrize(
    ("name", "how", "count", "dropped"),
    [
        ("squaddev_v1.1", "SQuAD v1.1", 10565, {MISPLACED: 15}),
        ("new_wiki_v1.0", "SQuAD v1.0", 7936, {MISPLACED: 8}),
        ("nyt_v1.0", "SQuAD v1.0", 10055, {MISPLACED: 10, UNANSWERED: 1}),
        ("amazon_reviews_v1.0", "SQuAD v1.0", 9566, {MISPLACED: 947, UNANSWERED: 311}),
    ],
)
def test_real_files(
    shared_data: Callable[[str], Path], name: str, how: str, count: int, dropped: dict[str, int]
) -> None:
    read = read_question_examples(shared_data(f"squad/{name}.json.gz"), labeled=True)
    assert (read.description, len(read.examples), read.dropped) == (how, count, dropped)
    for question in read.examples:
        assert question.answers
        for answer in question.answers:
            assert question.context[answer.start : answer.start + len(answer.text)] == answer.text


def squad(tmp_path: Path, questions: list[dict[str, object]], *, indent: int | None = None, **more: object) -> Path:
    path = tmp_path / "a.json"
    document = {"data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": questions}]}], **more}
    path.write_text(json.dumps(document, indent=indent), encoding="utf-8")
    return path


@pytest.mark.parametrize("indent", [None, 1])
def test_squad_version_2(tmp_path: Path, indent: int | None) -> None:
    given = [
        {"id": "x", "question": "Where?", "is_impossible": False, "answers": [{"text": "Norway", "answer_start": 13}]},
        {"id": "y", "question": "When?", "is_impossible": True, "answers": [], "plausible_answers": [{"text": "Oslo"}]},
    ]
    read = read_question_examples(squad(tmp_path, given, indent=indent, version="v2.0"), labeled=True)
    assert read.examples == [
        QuestionExample("x", "Where?", CONTEXT, (Answer("Norway", 13),)),
        QuestionExample("y", "When?", CONTEXT, (), answerable=False),
    ]
    assert (read.description, read.dropped, read.lines) == ("SQuAD v2.0", {}, [1, 2])
    assert read_question_examples(squad(tmp_path, given)).description == "SQuAD v2.0"


def test_misplaced_answers_are_dropped_and_counted(tmp_path: Path) -> None:
    starts = [13, 12, -27, 400]
    given: list[dict[str, object]] = [
        {"id": "x", "question": "Where?", "answers": [{"text": "Norway", "answer_start": start} for start in starts]},
        {
            "id": "y",
            "question": "Where?",
            "answers": [{"text": "Rome", "answer_start": 0}, {"text": "", "answer_start": 0}],
        },
    ]
    assert CONTEXT[-27:-21] == "Norway"  # a negative slice would match
    read = read_question_examples(squad(tmp_path, given))
    assert read.examples == [QuestionExample("x", "Where?", CONTEXT, (Answer("Norway", 13),))]
    assert read.dropped == {MISPLACED: 5, UNANSWERED: 1}
    unlabeled = read_question_examples(squad(tmp_path, given), labeled=False)
    assert [(q.id, q.answers) for q in unlabeled.examples] == [("x", ()), ("y", ())]
    assert unlabeled.dropped == {}
    with pytest.raises(InputError, match="no answer matches the context"):
        read_question_examples(squad(tmp_path, given[1:]))


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"id": "x"}, r"a\.json: data\[0\]\.paragraphs\[0\]\.qas\[0\]: no key 'question'"),
        ({"question": 3}, "'question' should be a string, got a number"),
        ({"question": "a", "answers": "b"}, "answers should be a list, got a string"),
        ({"question": "a", "answers": ["b"]}, "an answer should be an object"),
        ({"question": "a", "answers": [{"text": "Oslo", "answer_start": "0"}]}, "integer, got '0'"),
        ({"question": "a", "answers": [{"answer_start": 0}]}, "no key 'text'"),
        ({"question": "a"}, "no answers; expected"),
    ],
)
def test_invalid_documents_are_reported(tmp_path: Path, question: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_question_examples(squad(tmp_path, [question]), labeled=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"data": 3}', "a list called data"),
        ('{\n"data": [\n', r"a\.json line 2: not JSON"),
        ('{"data": [{"paragraphs": {}}]}', r"data\[0\]: expected a list of objects called paragraphs, got an object"),
        ('{"data": []}', "has no examples"),
        ("", "is empty"),
        ('{"question": "a"}', "line 1: expected question and context, got the keys question"),
    ],
)
def test_invalid_files_are_reported(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_question_examples(path)


def test_unlabeled_rows(tmp_path: Path) -> None:
    expected = [QuestionExample("1", "Where?", "In Rome.", ()), QuestionExample("k", "When?", "In May.", ())]
    path = tmp_path / "a.tsv"
    path.write_text("Where?\tIn Rome.\nWhen?\tIn May.\tk\n", encoding="utf-8")
    read = read_question_examples(path)
    assert (read.examples, read.lines) == (expected, [1, 2])
    path.write_text("id\tcontext\tquestion\n\tIn Rome.\tWhere?\nk\tIn May.\tWhen?\n", encoding="utf-8")
    assert read_question_examples(path).examples == [QuestionExample("2", "Where?", "In Rome.", ()), expected[1]]
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"question": "Where?", "context": "In Rome."}\n{"id": "k", "question": "When?", "context": "In May."}\n',
        encoding="utf-8",
    )
    assert read_question_examples(path).examples == expected
    with pytest.raises(InputError, match=r"a\.jsonl line 1: no answers"):
        read_question_examples(path, labeled=True)
    path = tmp_path / "b.tsv"
    path.write_text("Where?\tIn Rome.\nno context\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"b\.tsv line 2: expected columns question, context"):
        read_question_examples(path)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"Where?\tIn Rome.\n")))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdin", stream)
    assert read_question_examples("-").examples == [QuestionExample("1", "Where?", "In Rome.")]


def test_answers_as_two_lists(tmp_path: Path) -> None:
    rows = [
        {"id": "x", "question": "Where?", "context": CONTEXT, "answers": {"text": ["Oslo"], "answer_start": [0]}},
        {"id": "y", "question": "When?", "context": CONTEXT, "answers": {"text": [], "answer_start": []}},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    read = read_question_examples(path, labeled=True)
    assert [(q.answers, q.answerable) for q in read.examples] == [((Answer("Oslo", 0),), True), ((), False)]
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert read_question_examples(tmp_path / "a.parquet", labeled=True).examples == read.examples


def test_columns_by_name_and_by_number(tmp_path: Path) -> None:
    expected = [QuestionExample("2", "Where?", "In Rome."), QuestionExample("3", "When?", "In May.")]
    path = tmp_path / "a.tsv"
    path.write_text("place\tq\tc\nx\tWhere?\tIn Rome.\ny\tWhen?\tIn May.\n", encoding="utf-8")
    assert read_question_examples(path, TableOptions(columns=("q", "c"))).examples == expected
    assert read_question_examples(path, TableOptions(columns=("1", "2"), header=True)).examples == expected
    assert len(read_question_examples(path, TableOptions(columns=("1", "2"))).examples) == 3
    path.write_text("x|Where?|In Rome.\n", encoding="utf-8")
    read = read_question_examples(path, TableOptions(columns=("1", "2"), delimiter="|", quoting=False))
    assert read.examples == [QuestionExample("1", "Where?", "In Rome.")]
    path = tmp_path / "a.jsonl"
    row = {"id": "k", "ask": "Where?", "context": "no", "about": CONTEXT, "gold": [{"text": "Oslo", "answer_start": 0}]}
    path.write_text(json.dumps(row), encoding="utf-8")
    read = read_question_examples(path, TableOptions(columns=("ask", "about", "gold")), labeled=True)
    assert read.examples == [QuestionExample("k", "Where?", CONTEXT, (Answer("Oslo", 0),))]


def test_missing_columns_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"ask": "Where?", "about": "Rome"}', encoding="utf-8")
    with pytest.raises(InputError, match=r"line 1: no 'abuot', .*--columns.*; did you mean 'about'"):
        read_question_examples(path, TableOptions(columns=("ask", "abuot")))
    with pytest.raises(InputError, match=r"should be question, context\[, answers\]; got ask"):
        read_question_examples(path, TableOptions(columns=("ask",)))
    path = tmp_path / "a.tsv"
    path.write_text("q\tc\nWhere?\tIn Rome.\nWhen?\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 3: expected column 1, but this row has 1 columns"):
        read_question_examples(path, TableOptions(columns=("q", "c")))
    with pytest.raises(InputError, match=r"no column '4'; without a header, give a number from 0 to 1"):
        read_question_examples(path, TableOptions(columns=("0", "4")))
    with pytest.raises(InputError, match="should name each column once, got 0, 0"):
        read_question_examples(path, TableOptions(columns=("0", "0")))
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"data": [{"paragraphs": []}]}), encoding="utf-8")
    with pytest.raises(InputError, match="leave out --columns"):
        read_question_examples(path, TableOptions(columns=("question", "context")))


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("question,context,question\nwho,they did,when\n", encoding="utf-8")
    for columns in (None, ["question", "context"]):
        with pytest.raises(InputError, match="two columns named 'question'; rename one"):
            read_question_examples(path, TableOptions(columns=columns, delimiter=","))
