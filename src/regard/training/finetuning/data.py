"""The data of a run: the reader for each task's files, the train/dev split, and a digest of the examples."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from regard.data.examples import Example, ImageExample, TaggedExample, TextExample, is_labeled
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
from regard.data.split import split_examples
from regard.errors import InputError
from regard.tasks.task import Task

__all__ = [
    "DataSource",
    "TableOptions",
    "check_labels",
    "digest",
    "holds_images",
    "new_examples",
    "read_examples",
    "read_splits",
]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
PLAIN_TEXT_TASKS = ("classify", "tag")  # tasks that predict for plain text
DEFAULT_SPLIT = "90/10"
DataSource = str | os.PathLike[str] | ExampleSet[Any]  # a file, or the examples that a reader read


@dataclass(frozen=True)
class TableOptions:
    """The layout of a table; options that are None are inferred from the file."""

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
        """From command-line options: columns separated by commas, and \\t for a tab."""
        names = tuple(name.strip() for name in columns.split(",")) if columns else None
        return cls(names, header, "\t" if delimiter == "\\t" else delimiter, quoting)


def read_splits(
    task: str, train: DataSource, dev: DataSource | None, *, table: TableOptions | None, split_sizes: str | None
) -> dict[str, ExampleSet[Any]]:
    """The examples by split: train, dev, and test if `split_sizes` has three parts. Without `dev`, train is split."""

    def read(source: DataSource) -> ExampleSet[Any]:
        return source if isinstance(source, ExampleSet) else read_examples(task, source, table=table, labeled=True)

    whole = read(train)
    if dev is not None:
        if split_sizes is not None:
            raise InputError("--dev and --split both choose the dev data; use one of them")
        return {"train": whole, "dev": read(dev)}
    sizes = split_sizes or DEFAULT_SPLIT
    return {
        name: ExampleSet(
            [whole.examples[index] for index in indices],
            whole.path,
            f"{whole.description}; {name} part of {sizes}",
            whole.dropped if name == "train" else {},
            [whole.lines[index] for index in indices] if whole.lines else [],
            whole.unit,
        )
        for name, indices in zip(("train", "dev", "test"), split_examples(whole.examples, sizes), strict=False)
    }


def digest(read: ExampleSet[Any]) -> str:
    """A hash of the examples in their order."""
    found = hashlib.sha256()
    for example in read.examples:
        found.update(repr(example).encode("utf-8", "surrogatepass"))
        if isinstance(example, ImageExample):
            found.update(example.pixels.tobytes())
    return found.hexdigest()[:16]


def read_examples(
    task: str, path: str | os.PathLike[str], *, table: TableOptions | None = None, labeled: bool | None = None
) -> ExampleSet[Any]:
    """The examples in a file. With `labeled` True missing labels are an error; with False labels are not read."""
    table, path = table or TableOptions(), os.fspath(path)
    if task == "classify" and holds_images(path):
        if table != TableOptions():
            raise InputError(f"{path} holds images, which have no columns; leave out --columns and the like")
        return read_image_examples(path, labeled=labeled)
    match task:
        case "tag":
            if replace(table, columns=None) != TableOptions():
                raise InputError(
                    "tag reads columns separated by spaces or tabs, without header or quotes; leave out --header, "
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
    """Whether the path is a folder, an image or an IDX file; everything else is text."""
    name = path.lower()
    return os.path.isdir(path) or name.endswith(IMAGES) or ("idx" in name and "ubyte" in name)


def check_labels(task: Task[Any], read: ExampleSet[Any]) -> None:
    """InputError with file and line for a label that the task does not know."""
    for index, example in enumerate(read.examples):
        try:
            if not is_labeled(example):
                raise InputError("the example has no label")
            task.check(example)
        except InputError as error:
            raise InputError(f"{read.path} {read.location(index)}: {error}") from None


def new_examples(task: str, source: str, *, table: TableOptions | None = None) -> Iterator[Example]:
    """Unlabeled examples: of a file, of lines of standard input as they arrive, or of the given text itself."""
    if source != STANDARD_INPUT and not os.path.exists(source):
        if task not in PLAIN_TEXT_TASKS or not any(map(str.isspace, source)):
            raise InputError(f"{source}: no such file; expected a file of input, or - for standard input")
        yield _plain_example(task, source)
    elif source == STANDARD_INPUT and task in PLAIN_TEXT_TASKS and table in (None, TableOptions()):
        yield from _standard_input(task)
    else:
        yield from read_examples(task, source, table=table, labeled=False).examples


def _standard_input(task: str) -> Iterator[Example]:
    """One text per line as it arrives: plain, or JSON with the key `text`."""
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
                    f"standard input line {number}: expected one text per line, or JSON with the key text; for a "
                    "table, name the column of the text with --columns"
                )
            yield _plain_example(task, text)


def _plain_example(task: str, line: str) -> Example:
    return TextExample(line) if task == "classify" else TaggedExample(line, tuple(split_words(line)))
