"""Tables as fields of requests: the options of every verb that reads rows, and labeled texts.

A verb that learns from rows or evaluates on them is a `TableRequest`; one that answers row by row is a `RowsRequest`.
The two differ in what happens to rows without a text or label (`--missing`); `table_options` gives the options to a
reader: `regard.data.rows.open_rows`, or `regard.tasks.registry.read_examples`.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, ValidationInfo

from regard.data.labels import is_missing, is_missing_label
from regard.data.text_inputs import DataFrameSource, read_items
from regard.errors import InputError
from regard.events import Note
from regard.verbs.base import TABLE_GROUP, Request, TextsMarker, option, reads_files
from regard.wording import count_of

if TYPE_CHECKING:
    from regard.data.examples import TextExample
    from regard.data.readers import TableOptions
    from regard.data.rows import RowReader


def _parse(value: object, info: ValidationInfo) -> object:
    if isinstance(value, os.PathLike) or (isinstance(value, str) and reads_files(info)):
        return Path(value)
    if isinstance(value, str):
        return [(example.text, example.label) for example in parse_lines(value)]
    if hasattr(value, "columns"):
        raise ValueError(
            "expected texts, or pairs of a text and its label, such as list(zip(texts, labels)); got a table"
        )
    return [_row(item) for item in read_items(value)]


def _row(item: object) -> tuple[object, ...]:
    """A text without a label, or a text and its label; None where one is missing."""
    text, *label = item if isinstance(item, list | tuple) and item else (item, None)
    text = None if is_missing(text) and not isinstance(text, str) else text
    return text, *(None if is_missing_label(value) else str(value) for value in label)


# A table or a file with one text per line ("-" is standard input), texts, or pairs of a text and its label. Over HTTP a
# string holds the lines themselves: a client cannot make the server read a file.
LabeledTexts: TypeAlias = Annotated[list[tuple[str | None, str | None]] | Path, BeforeValidator(_parse), TextsMarker()]


class _TableFormatRequest(Request):
    """How a table is read. What is not given is inferred from the file, and reported."""

    columns: list[str] | None = option(
        None, help="Columns by name or index from 0: texts first, then the label.", metavar="A,B", group=TABLE_GROUP
    )
    header: bool | None = option(
        None, "--header/--no-header", help="Whether the first row names the columns.", group=TABLE_GROUP
    )
    delimiter: str | None = option(
        None, help="Separator between columns; \\t is a tab.", metavar="C", group=TABLE_GROUP
    )
    quoted: bool | None = option(
        None, "--quoted/--unquoted", help="Whether quotes around values are part of the format.", group=TABLE_GROUP
    )
    encoding: str | None = option(
        None, help="Encoding of the file, such as latin-1. Default: utf-8.", metavar="NAME", group=TABLE_GROUP
    )


class TableRequest(_TableFormatRequest):
    """Options of verbs that learn from the rows of a table, or evaluate on them."""

    missing: Literal["error", "skip"] = option(
        "error", help="Rows without a text or label: refuse the file, or skip and count them.", group=TABLE_GROUP
    )


class RowsRequest(_TableFormatRequest):
    """Options of verbs that answer row by row."""

    columns: list[str] | None = option(
        None, help="Column of the text by name or index from 0; of a pair, two.", metavar="A,B", group=TABLE_GROUP
    )
    missing: Literal["keep", "skip", "error"] = option(
        "keep",
        help="Rows without a text: keep them with an empty answer, skip them, or refuse the file.",
        group=TABLE_GROUP,
    )


def open_texts(
    source: str | Path | DataFrameSource | Sequence[str | None],
    request: TableRequest | RowsRequest,
    *,
    num_texts: int | None = 1,
    interactive: bool = False,
) -> Generator[Note, None, RowReader]:
    """The rows of a request; reports how a table was read. `interactive`: a sender may wait for each answer."""
    from regard.data.readers.tables import SAMPLE
    from regard.data.rows import open_rows

    rows = open_rows(source, table_options(request), num_texts=num_texts, sample=1 if interactive else SAMPLE)
    if rows.is_table:
        yield Note(message=f"{rows.name}: {rows.description}")
    return rows


def read_labeled_texts(
    source: list[tuple[str | None, str | None]] | Path, request: TableRequest, *, labeled: bool | None = None
) -> Generator[Note, None, list[TextExample]]:
    """The examples of a request; reports how a file was read."""
    from regard.data.examples import TextExample

    if not isinstance(source, Path):
        if labeled and all(label is None for _, label in source):
            raise InputError("the texts have no labels; give pairs, or lines such as: a fine film | good")
        present = [
            TextExample(text, label=label) for text, label in source if text is not None and (label or not labeled)
        ]
        if (missing := len(source) - len(present)) and request.missing == "error":
            rows = count_of(missing, "row")
            raise InputError(f"{rows} without a text or label; fix them, or leave them out with missing='skip'")
        if missing:
            yield Note(message=f"{count_of(missing, 'row')} without a text or label left out")
        return present
    return (yield from read_table("classify", source, request, labeled=labeled))


def read_table(
    task: str, path: Path, request: TableRequest, *, labeled: bool | None = None
) -> Generator[Note, None, list[TextExample]]:
    """The examples of a file for a task; reports how it was read."""
    from regard.tasks.registry import read_examples

    read = read_examples(task, path, table=table_options(request), labeled=labeled)
    yield Note(message=f"{read.path}: {read.description}; {count_of(len(read.examples), 'example')}")
    examples: list[TextExample] = read.examples
    return examples


def table_options(request: TableRequest | RowsRequest) -> TableOptions:
    """The options of a request for the readers."""
    from regard.data.readers import TableOptions

    return TableOptions.parse(
        ",".join(request.columns) if request.columns else None,
        header=request.header,
        delimiter=request.delimiter,
        quoting=request.quoted,
        encoding=request.encoding,
        missing=request.missing,
    )


def parse_lines(lines: str) -> list[TextExample]:
    """Parse texts, one per line, as a file would hold them: a label follows a tab or the last | of each line.

    The content of a TSV, CSV or JSON-lines file is read as `regard train` reads that file.
    """
    from regard.data.examples import TextExample
    from regard.data.readers import read_text_examples

    rows = [line for line in lines.replace("\r\n", "\n").split("\n") if line.strip()]
    if not rows:
        raise InputError("there are no sentences; give one per line")
    if all("|" in row for row in rows) and not any("\t" in row for row in rows):
        parts = [row.rpartition("|") for row in rows]
        return [
            TextExample(text.strip(), label=_label(label, number)) for number, (text, _, label) in enumerate(parts, 1)
        ]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lines.txt"  # the extension tells nothing: the reader looks at the content
        path.write_bytes("\n".join(rows).encode("utf-8", "replace"))
        try:
            return read_text_examples(path, task="classify").examples
        except InputError as error:
            raise InputError(str(error).replace(f"{path} ", "").replace(str(path), "the text")) from None


def _label(written: str, number: int) -> str:
    if not written.strip():
        raise InputError(f"line {number} has no label after its |; give every line one, or none")
    return written.strip()
