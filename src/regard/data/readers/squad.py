"""Reads questions with a context and extractive answers: SQuAD JSON v1.1 and v2, JSON lines, Parquet and tables.

Answers that the context does not have at their offset are dropped.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from regard.data.examples import Answer, QuestionExample
from regard.data.files import STANDARD_INPUT, content_suffix, display_name, open_text
from regard.data.readers.memory import refuse_repeated
from regard.data.readers.records import (
    ExampleSet,
    MissingValue,
    Path,
    Record,
    Records,
    json_object,
    json_whole,
    keep_missing,
    kind_of,
    open_records,
    string_at,
)
from regard.data.readers.tables import INFERRED, Missing, Table, TableOptions, column_at, fold, rows_of, table_of
from regard.errors import InputError

MISPLACED = "answer does not match the context at its offset"
UNANSWERED = "question has no answer left"
COLUMNS = ("question", "context", "answers")


def read_question_examples(
    path: Path, options: TableOptions = INFERRED, *, labeled: bool | None = None
) -> ExampleSet[QuestionExample]:
    """Read SQuAD JSON, or JSON lines, Parquet or TSV with `question`, `context` and optionally `id`.

    Answers that the context does not have at their offset are dropped and counted; questions that lose all answers
    this way are dropped and counted separately. SQuAD v2's `is_impossible` makes `answerable` False, and so does an
    empty list of `answers` in JSON lines and Parquet. `labeled`: False ignores answers, True requires them. A question
    without an id gets its line number, or in SQuAD JSON its number in the file. The options may name other keys or
    columns: question, context and optionally answers. `missing` "skip" leaves out records without a question or context
    and counts them.
    """
    name, columns, is_table = display_name(path), options.columns, options.delimiter is not None
    if columns is not None and not 2 <= len(columns) <= len(COLUMNS):
        raise InputError(f"--columns for answer should be question, context[, answers]; got {', '.join(columns)}")
    reader = _Questions(name, labeled, columns, options.missing)
    records, lines = open_records(path, is_table=is_table, encoding=options.encoding)
    document = _document(path, lines, name) if lines and not is_table else None
    if document is not None:
        if columns is not None:
            raise InputError(f"{name}: the keys of SQuAD JSON are fixed; leave out --columns")
        return reader.from_squad(document)
    if records is None:
        table = table_of(lines, path, options)
        header = options.header
        rows = _rows(table, header=header) if columns is None else rows_of(table, columns, header=header)
        records = Records(name, rows, "table")
    return reader.from_records(records)


def holds_squad(path: Path) -> bool:
    """Return whether a file is one SQuAD document; other files have a question per row."""
    if os.fspath(path) == STANDARD_INPUT or content_suffix(path) in (".jsonl", ".ndjson", ".parquet", ".pq"):
        return False
    with open_text(path) as lines:
        first = next((line.strip() for line in lines if line.strip()), "")
    record = json_object(first)
    return first.startswith("{") and (record is None or "data" in record)


def _document(path: Path, lines: Sequence[str], name: str) -> Record | None:
    """Return the SQuAD document, or None if the file has rows. An invalid document is an error, not a table."""
    first = next(line for line in lines if line.strip()).strip()
    if not first.startswith("{") or content_suffix(path) in (".jsonl", ".ndjson"):
        return None
    document = json_object(first)
    if document is not None and "data" not in document:
        return None
    value = json_whole(lines, name) if document is None or len(lines) > 1 else document
    if not isinstance(value, dict) or not isinstance(value.get("data"), list):
        raise InputError(
            f"{name}: expected a SQuAD object with a list called data, or a .jsonl file with one object per line"
        )
    return value


def _rows(table: Table, *, header: bool | None) -> Iterator[tuple[int, Record]]:
    names = [fold(str(cell)) for cell in table.rows[0]]
    has_header = "question" in names if header is None else header
    refuse_repeated(names if has_header else [], table.name)
    keys = names if has_header else ["question", "context", "id"]
    for row in range(int(has_header), len(table.rows)):
        cells = table.rows[row]
        if len(cells) < 2:
            raise InputError(
                f"{table.location(row)}: expected columns question, context and optionally id, "
                f"got one: {str(cells[0])[:60]!r}; separate them with a tab"
            )
        yield table.lines[row], dict(zip(keys, cells, strict=False))


@dataclass
class _Questions:
    """Collects questions and counts what is dropped."""

    name: str
    labeled: bool | None
    columns: Sequence[str] | None = None
    missing: Missing | None = None
    questions: list[QuestionExample] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    misplaced: int = 0
    unanswered: int = 0
    skipped: Counter[str] = field(default_factory=Counter)

    def example_set(self, description: str, unit: str) -> ExampleSet[QuestionExample]:
        counts = {MISPLACED: self.misplaced, UNANSWERED: self.unanswered}
        dropped = {reason: count for reason, count in counts.items() if count} | self.skipped
        if self.unanswered and not self.questions:
            raise InputError(
                f"{self.name}: no answer matches the context at its answer_start (in characters from 0); fix them"
            )
        columns = tuple(self.columns[:2]) if self.columns is not None else COLUMNS[:2]
        return ExampleSet(self.questions, self.name, description, dropped, self.numbers, unit, columns)

    def from_squad(self, document: Record) -> ExampleSet[QuestionExample]:
        impossible = False
        for number, (where, context, record) in enumerate(_entries(document, self.name), start=1):
            impossible |= "is_impossible" in record
            answerable = not record.get("is_impossible", False)
            self.add(record, context, number, where, answerable=answerable)
        version = str(document.get("version", "")).lstrip("v") or ("2.0" if impossible else "1.1")
        return self.example_set(f"SQuAD v{version}", "question")

    def from_records(self, records: Records) -> ExampleSet[QuestionExample]:
        for number, record in records.numbered:
            where = f"{self.name} {records.unit} {number}"
            if self.columns is not None:
                named = zip(COLUMNS, self.columns, strict=False)
                record = record | {key: column_at(record, column, where) for key, column in named}
            key = next((key for key in ("context", "passage", "paragraph") if key in record), "context")
            if "question" not in record or key not in record:
                keys = ", ".join(record) or "none"
                raise InputError(
                    f"{where}: expected question and context, got the keys {keys}; name them with --columns"
                )
            answers = record.get("answers")
            if isinstance(answers, dict):  # two lists, as on the Hugging Face hub
                columns = [answers.get("text"), answers.get("answer_start")]
                if not all(isinstance(column, list) for column in columns):
                    raise InputError(f"{where}: answers should have two lists, text and answer_start")
                texts, starts = columns
                pairs = zip(texts, starts, strict=False)  # type: ignore[arg-type]
                record = {**record, "answers": [{"text": text, "answer_start": start} for text, start in pairs]}
            answerable = record.get("answers") != [] and not record.get("is_impossible", False)
            try:
                self.add(record, string_at(record, key, where), number, where, answerable=answerable)
            except MissingValue as error:
                keep_missing(self.missing, error, self.skipped)
        return self.example_set(f"{records.description} of questions and contexts", records.unit)

    def add(self, record: Record, context: str, number: int, where: str, *, answerable: bool) -> None:
        identity = record.get("id")
        text = string_at(record, "question", where)
        answers: tuple[Answer, ...] = ()
        if self.labeled is False:
            answerable = True
        elif answerable:
            given = record.get("answers")
            if given is not None and not isinstance(given, list):
                raise InputError(f"{where}: answers should be a list, got {kind_of(given)}")
            all_answers = [_answer(answer, where) for answer in given or []]
            if self.labeled and not all_answers:
                raise MissingValue(f"{where}: no answers; expected a list of objects with text and answer_start")
            answers = tuple(a for a in all_answers if a.start >= 0 and a.text and context.startswith(a.text, a.start))
            self.misplaced += len(all_answers) - len(answers)
            if all_answers and not answers:
                self.unanswered += 1
                return
        name = str(number) if identity is None or identity == "" else str(identity)
        self.questions.append(QuestionExample(name, text, context, answers, answerable))
        self.numbers.append(number)


def _entries(document: Record, name: str) -> Iterator[tuple[str, str, Record]]:
    for article, entry in enumerate(_objects(document, "data", name)):
        article_name = f"{name}: data[{article}]"
        for index, paragraph in enumerate(_objects(entry, "paragraphs", article_name)):
            where = f"{article_name}.paragraphs[{index}]"
            context = string_at(paragraph, "context", where)
            for question, record in enumerate(_objects(paragraph, "qas", where)):
                yield f"{where}.qas[{question}]", context, record


def _objects(record: Record, key: str, where: str) -> list[Record]:
    value = record.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InputError(f"{where}: expected a list of objects called {key}, got {kind_of(value)}")
    return value


def _answer(answer: object, where: str) -> Answer:
    if not isinstance(answer, dict):
        raise InputError(f"{where}: an answer should be an object with text and answer_start, got {kind_of(answer)}")
    start = answer.get("answer_start")
    if not isinstance(start, int) or isinstance(start, bool):
        raise InputError(f"{where}: answer_start should be an integer, got {start!r}")
    return Answer(string_at(answer, "text", where), start)
