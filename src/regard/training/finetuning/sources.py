"""Which reader a task's files need. Knows the readers and the tasks' names; decides nothing about columns itself."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from regard.data.examples import Example, Tagged, Text, labelled
from regard.data.files import STANDARD_INPUT, open_text
from regard.data.readers import Read, read_choices, read_pictures, read_questions, read_tagged, read_texts, words_of
from regard.errors import InputError
from regard.tasks.base import Task

__all__ = ["Table", "check_labels", "new_examples", "read_examples"]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
PLAIN = ("classify", "tag")  # what a plain text is enough for


@dataclass(frozen=True)
class Table:
    """What a user says of a table; None: it is decided by looking at the file."""

    columns: tuple[str, ...] | None = None
    header: bool | None = None
    delimiter: str | None = None
    quoting: bool | None = None

    @classmethod
    def said(
        cls,
        columns: str | None,
        *,
        header: bool | None = None,
        delimiter: str | None = None,
        quoting: bool | None = None,
    ) -> Table:
        """As options say it: columns with commas between them, and \\t for a tab."""
        names = tuple(name.strip() for name in columns.split(",")) if columns else None
        return cls(names, header, "\t" if delimiter == "\\t" else delimiter, quoting)


def read_examples(
    task: str, path: str | os.PathLike[str], *, table: Table | None = None, labelled: bool | None = None
) -> Read[Any]:
    """The examples in a file; `labelled` True makes a file without labels an error, False leaves them unread."""
    table, path = table or Table(), os.fspath(path)
    if task == "classify" and shows_pictures(path):
        if table != Table():
            raise InputError(f"{path} holds pictures, which have no columns; leave --columns and its like out")
        return read_pictures(path, labelled=labelled)
    match task:
        case "tag":
            if replace(table, columns=None) != Table():
                raise InputError(
                    "tag reads columns with blanks or tabs between them, no header and no quotes; leave out --header, "
                    "--delimiter and --quoted"
                )
            return read_tagged(path, labelled=labelled, columns=table.columns)
        case "answer":
            return read_questions(path, labelled=labelled, **vars(table))
        case "choose":
            return read_choices(path, labelled=labelled, **vars(table))
        case "classify" | "pair" | "regress":
            return read_texts(path, task=task, labelled=labelled, **vars(table))
    raise InputError(f"no reader for {task!r}")


def shows_pictures(path: str) -> bool:
    """A folder, an image or MNIST's kind of file; all else is text."""
    name = path.lower()
    return os.path.isdir(path) or name.endswith(IMAGES) or ("idx" in name and "ubyte" in name)


def check_labels(task: Task[Any], read: Read[Any]) -> None:
    """InputError with file and place for a label that the task does not know."""
    for place, example in enumerate(read.examples):
        try:
            if not labelled(example):
                raise InputError("the example has no label")
            task.check(example)
        except InputError as error:
            raise InputError(f"{read.path} {read.place(place)}: {error}") from None


def new_examples(task: str, source: str, *, table: Table | None = None) -> Iterator[Example]:
    """What to predict for: the examples of a file, lines of plain text as they come, or the one text that is given."""
    if source != STANDARD_INPUT and not os.path.exists(source):
        if task not in PLAIN or not any(map(str.isspace, source)):
            raise InputError(f"{source}: no such file; expected a file of input, or - for standard input")
        yield _plain(task, source)
    elif source == STANDARD_INPUT and task in PLAIN and table in (None, Table()):
        yield from _piped(task)
    else:
        yield from read_examples(task, source, table=table, labelled=False).examples


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
    return Text(line) if task == "classify" else Tagged(line, tuple(words_of(line)))
