"""The input of predictions: a text, a file, a list or a DataFrame as rows, each with its example, in order.

Tables and lines are read row by row, in constant memory, and a row without a text keeps its place. What a task reads in
a format of its own (SQuAD's JSON, CoNLL's columns, endings, images) is read completely.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regard.data.example_images import example_images
from regard.data.examples import Example, QuestionExample, TaggedExample, TextExample, example_values
from regard.data.files import STANDARD_INPUT, display_name, is_file_name, is_rereadable, read_all_lines
from regard.data.readers import RecordList, TableOptions, holds_images
from regard.data.readers.records import open_records
from regard.data.readers.tables import SAMPLE, Missing
from regard.data.rows import Row, RowReader, open_rows
from regard.errors import InputError, suggest
from regard.tasks.task import Task

ALL = "all"  # columns


@dataclass(frozen=True, slots=True)
class InputRow:
    """A row of the input: its number from 0, its line in a file, and the columns that are copied to the output.

    `example` is None if a text is missing: such a row gets no answer.
    """

    number: int
    line: int | None
    example: Example | None
    kept: Mapping[str, object]


@dataclass(frozen=True)
class PredictionInput:
    """Rows that can be read once. `reopen` reads them again, `rereadable` says whether another process could.

    `kept` are the columns that are copied to the output; `description` says how the input was read. `reader` counts the
    rows that are `skipped`.
    """

    name: str
    description: str
    kept: tuple[str, ...]
    rows: Iterator[InputRow]
    reopen: Callable[[], Iterator[InputRow]] | None
    rereadable: bool
    unit: str = "line"
    has_lines: bool = False
    typed: bool = False  # one example in an argument
    reader: RowReader | None = None  # of rows that are skipped if they have no text

    @property
    def skipped(self) -> tuple[int, str | None]:
        """How many of the rows that were read were skipped, and a sentence about them."""
        return (0, None) if self.reader is None else (self.reader.num_missing, self.reader.missing_note("skip"))

    def location(self, row: InputRow) -> str:
        return f"{self.name} {self.unit} {row.line}" if row.line is not None else f"{self.name} row {row.number}"


def open_input(
    task: Task[Any],
    source: Any,
    second: str | os.PathLike[str] | None = None,
    *,
    table: TableOptions | None = None,
    keep: Sequence[str] = (),
    names: Sequence[str] = (),
    live: bool = False,
) -> PredictionInput:
    """Open what to predict: a text, a text and a `second` one, a file, "-", a list of texts or pairs, or a DataFrame.

    A string that names an existing file is a file. `second` may be a file whose content is the second text. `keep` are
    columns of a table to copy, or `ALL`. `names` are the columns of the training data. With `live`, standard input is
    read line by line, for a sender that waits for each answer.
    """
    table = table or TableOptions()
    if isinstance(source, tuple) and len(source) == 2 and all(isinstance(text, str) for text in source):
        source, second = source
    if second is not None:
        return _of_examples([_typed_pair(task, source, second)], "the input", "two texts", keep, typed=True)
    if isinstance(source, os.PathLike) or (isinstance(source, str) and is_file_name(source)):
        return _open_file(task, os.fspath(source), table, keep, names, live=live)
    if task.reads_images and (images := _example_images(source)):
        return _of_examples([task.example(name) for name in images], "the input", "example images", keep)
    if isinstance(source, str):
        return _of_examples([_typed(task, source)], "the input", "one text", keep, typed=True)
    if task.reads_images:
        raise InputError("this model reads images; give the name of an image file or of a folder")
    if task.input_hint and isinstance(source, list) and len(source) == 1 and isinstance(source[0], str):
        raise InputError(task.input_hint)
    if task.num_texts == 0:
        if hasattr(source, "columns") or any(isinstance(item, Mapping) for item in source):
            return _of_records(task, RecordList.from_source(source), None, table, keep)
        return _of_examples([_listed(task, item, index) for index, item in enumerate(source)], "the list", "list", keep)

    def open_again() -> RowReader:
        return open_rows(source, table, num_texts=_num_texts(task, names), names=names)

    return _of_rows(task, open_again, keep, table.missing)


def _open_file(
    task: Task[Any], path: str, table: TableOptions, keep: Sequence[str], names: Sequence[str], *, live: bool
) -> PredictionInput:
    if path != STANDARD_INPUT and not (os.path.exists(path) or is_rereadable(path)):
        raise InputError(
            f"{path}: no such file; expected a file of input, a text, or - for standard input. If it is a text, send "
            "it to standard input"
        )
    if task.reads_images and not holds_images(path):
        raise InputError(f"{path}: this model reads images; give the name of an image file or of a folder")
    is_file = is_rereadable(path)
    if task.reads_images or task.num_texts == 0 or (os.path.isfile(path) and task.has_own_format(path)):
        records = read_records(path) if task.num_texts == 0 and is_file else None
        if records is not None:
            return _of_records(task, *records, table, keep)
        read = task.reader(path, table, labeled=False)
        lines = read.lines or None
        rereadable = path != STANDARD_INPUT and os.path.exists(path)
        return _of_examples(
            read.examples, display_name(path), read.description, keep, lines, read.unit, rereadable=rereadable
        )
    sample = 1 if live and path == STANDARD_INPUT else SAMPLE

    def open_again() -> RowReader:
        return open_rows(path, table, num_texts=_num_texts(task, names), names=names, sample=sample)

    return _of_rows(task, open_again, keep, table.missing, lines=True, rereadable=is_file)


def _num_texts(task: Task[Any], names: Sequence[str]) -> int | None:
    """The texts per row: as many as in the training data, if its columns are known."""
    return len(names) or task.num_texts


def _of_rows(
    task: Task[Any],
    open_again: Callable[[], RowReader],
    keep: Sequence[str],
    missing: Missing | None,
    *,
    lines: bool = False,
    rereadable: bool = True,
) -> PredictionInput:
    missing = missing or "keep"
    reader = open_again()
    kept = chosen_columns(keep, reader.columns, reader.name)

    def convert(rows: RowReader) -> Iterator[InputRow]:
        for row in rows.read(missing):
            values = {name: row.values.get(name) for name in kept}
            yield InputRow(row.number, row.line if lines else None, _example(task, row), values)

    return PredictionInput(
        reader.name,
        reader.description,
        kept,
        convert(reader),
        (lambda: convert(open_again())) if rereadable else None,
        rereadable,
        reader.unit,
        lines,
        reader=reader if missing == "skip" else None,
    )


def _example(task: Task[Example], row: Row) -> Example | None:
    if any(text is None or not text.strip() for text in row.texts):
        return None
    example = task.example(*row.texts)  # type: ignore[arg-type]
    if isinstance(example, QuestionExample) and row.values.get("id") is not None:
        return replace(example, id=str(row.values["id"]))
    return example


def _of_examples(
    examples: Sequence[Example],
    name: str,
    description: str,
    keep: Sequence[str],
    lines: Sequence[int | None] | None = None,
    unit: str = "line",
    *,
    rereadable: bool = True,
    typed: bool = False,
    records: Sequence[Mapping[str, object]] | None = None,
) -> PredictionInput:
    """Examples that are in memory; `records` are the rows that they were made of, if these have columns."""
    columns = list(dict.fromkeys(name for values in records or map(example_values, examples[:1]) for name in values))
    kept = chosen_columns(keep, columns, name)

    def rows() -> Iterator[InputRow]:
        for number, example in enumerate(examples):
            values = example_values(example) if records is None else records[number]
            blank = isinstance(example, TextExample | TaggedExample) and not example.text.strip()
            line = None if lines is None else lines[number]
            yield InputRow(number, line, None if blank else example, {column: values.get(column) for column in kept})

    return PredictionInput(name, description, kept, rows(), rows, rereadable, unit, lines is not None, typed)


def read_records(path: str) -> tuple[RecordList, list[int]] | None:
    """The records of JSON or Parquet with their lines; None for another file."""
    records, _ = open_records(path)
    if records is None:
        return None
    numbered = list(records.numbered)
    return RecordList([record for _, record in numbered], records.name), [number for number, _ in numbered]


def _of_records(
    task: Task[Any],
    records: RecordList,
    lines: Sequence[int] | None,
    table: TableOptions,
    keep: Sequence[str],
) -> PredictionInput:
    """Rows with columns of a task that reads something else than texts."""
    read = task.reader(records, table, labeled=False)
    return _of_examples(read.examples, records.name, read.description, keep, lines, records=records.records)


def chosen_columns(keep: Sequence[str], columns: Sequence[str], name: str) -> tuple[str, ...]:
    """The columns to copy; InputError for one that the input does not have."""
    if list(keep) == [ALL]:
        return tuple(columns)
    for column in keep:
        if column not in columns:
            raise InputError(f"--keep: {name} has no column {column!r}; {suggest(column, columns)}")
    return tuple(dict.fromkeys(keep))


def _example_images(source: Any) -> list[str]:
    """The names of example images, if the input consists of these alone."""
    names = [source] if isinstance(source, str) else source if isinstance(source, list) else []
    return names if all(isinstance(name, str) and name in example_images() for name in names) else []


def _typed(task: Task[Example], text: str) -> Example:
    if task.input_hint:
        tab = " A tab does not separate them here." if "\t" in text else ""
        raise InputError(f"{task.input_hint}{tab}")
    if not text.strip():
        raise InputError("the text is blank; expected at least one word")
    return task.example(text)


def _typed_pair(task: Task[Example], text: object, second: str | os.PathLike[str]) -> Example:
    if isinstance(text, list) and len(text) == 1 and isinstance(text[0], str):
        text = text[0]
    elif isinstance(text, str) and (text == STANDARD_INPUT or os.path.isfile(text)):
        raise InputError(f"two inputs were given, and {text} is a file; give a file of pairs alone, or two texts")
    if not isinstance(text, str):
        raise InputError("a second text goes with one text; give a list of pairs instead")
    if isinstance(second, os.PathLike):
        second = "\n".join(read_all_lines(second))
    if not text.strip() or not second.strip():
        raise InputError("one of the two texts is blank; expected at least one word in each")
    if task.num_texts == 1:
        raise InputError(f"{task.name} reads one text, and two were given; quote a text of several words")
    return task.example(text, second)


def _listed(task: Task[Example], item: object, index: int) -> Example:
    """An item of a list for a task that reads neither texts nor pairs: a text and its endings."""
    texts = [item] if isinstance(item, str) or not isinstance(item, Sequence) else list(item)
    if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
        raise InputError(f"item {index + 1}: {task.input_hint}")
    return task.example(*map(str, texts))
