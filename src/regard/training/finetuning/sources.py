"""Which reader a task's files need. Knows the readers and the tasks' names; decides nothing about columns itself."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from regard.data.examples import Example, TaggedExample, TextExample, is_labeled
from regard.data.files import STANDARD_INPUT, open_text
from regard.data.readers import (
    ExampleSet,
    read_choice_examples,
    read_image_examples,
    read_question_examples,
    read_tagged_examples,
    read_text_examples,
    split_words,
)
from regard.errors import InputError
from regard.tasks.task import Task

__all__ = ["TableOptions", "check_labels", "new_examples", "read_examples"]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
PLAIN = ("classify", "tag")  # what a plain text is enough for


@dataclass(frozen=True)
class TableOptions:
    """What a user says of a table; None: it is decided by looking at the file."""

    columns: tuple[str, ...] | None = None
    header: bool | None = None
    delimiter: str | None = None
    quoting: bool | None = None

    @classmethod
    def parse(
        cls,
        columns: str | None,
        *,
        header: bool | None = None,
        delimiter: str | None = None,
        quoting: bool | None = None,
    ) -> TableOptions:
        """As options say it: columns with commas between them, and \\t for a tab."""
        names = tuple(name.strip() for name in columns.split(",")) if columns else None
        return cls(names, header, "\t" if delimiter == "\\t" else delimiter, quoting)


def read_examples(
    task: str, path: str | os.PathLike[str], *, table: TableOptions | None = None, labeled: bool | None = None
) -> ExampleSet[Any]:
    """The examples in a file; `labeled` True makes a file without labels an error, False leaves them unread."""
    table, path = table or TableOptions(), os.fspath(path)
    if task == "classify" and holds_images(path):
        if table != TableOptions():
            raise InputError(f"{path} holds pictures, which have no columns; leave --columns and its like out")
        return read_image_examples(path, labeled=labeled)
    match task:
        case "tag":
            if replace(table, columns=None) != TableOptions():
                raise InputError(
                    "tag reads columns with blanks or tabs between them, no header and no quotes; leave out --header, "
                    "--delimiter and --quoted"
                )
            return read_tagged_examples(path, labeled=labeled, columns=table.columns)
        case "answer":
            return read_question_examples(path, labeled=labeled, **vars(table))
        case "choose":
            return read_choice_examples(path, labeled=labeled, **vars(table))
        case "classify" | "pair" | "regress":
            return read_text_examples(path, task=task, labeled=labeled, **vars(table))
    raise InputError(f"no reader for {task!r}")


def holds_images(path: str) -> bool:
    """A folder, an image or MNIST's kind of file; all else is text."""
    name = path.lower()
    return os.path.isdir(path) or name.endswith(IMAGES) or ("idx" in name and "ubyte" in name)


def check_labels(task: Task[Any], read: ExampleSet[Any]) -> None:
    """InputError with file and place for a label that the task does not know."""
    for place, example in enumerate(read.examples):
        try:
            if not is_labeled(example):
                raise InputError("the example has no label")
            task.check(example)
        except InputError as error:
            raise InputError(f"{read.path} {read.location(place)}: {error}") from None


def new_examples(task: str, source: str, *, table: TableOptions | None = None) -> Iterator[Example]:
    """What to predict for: the examples of a file, lines of plain text as they come, or the one text that is given."""
    if source != STANDARD_INPUT and not os.path.exists(source):
        if task not in PLAIN or not any(map(str.isspace, source)):
            raise InputError(f"{source}: no such file; expected a file of input, or - for standard input")
        yield _plain(task, source)
    elif source == STANDARD_INPUT and task in PLAIN and table in (None, TableOptions()):
        yield from _piped(task)
    else:
        yield from read_examples(task, source, table=table, labeled=False).examples


def _piped(task: str) -> Iterator[Example]:
    """Texts of standard input as they come, one a line: plain, or JSON with the key `text`."""
    with open_text(STANDARD_INPUT) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            text: object = line
            if line.lstrip().startswith("{"):
                try:
                    text = json.loads(line)["text"]
                except (ValueError, KeyError, TypeError, RecursionError):
                    text = None
            if not isinstance(text, str) or "\t" in line:
                raise InputError(
                    f"standard input line {number}: expected a text a line, or JSON with the key text; of a table, say "
                    "with --columns where the text is"
                )
            yield _plain(task, text)


def _plain(task: str, line: str) -> Example:
    return TextExample(line) if task == "classify" else TaggedExample(line, tuple(split_words(line)))
