"""Rows of lines with quoted fields: the `csv` module with line numbers and a limit for a field that never ends."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from regard.data.line_limit import current_max_line
from regard.errors import InputError
from regard.files.file_input import format_size

__all__ = ["csv_rows", "widen_fields"]

# The csv module stops at 131,072 characters a field unless told otherwise, for the whole process.
_LONGEST_FIELD = 2**31 - 1


def csv_rows(
    lines: Iterable[str], name: str, *, delimiter: str = ",", remedy: str, max_line: int | None = None
) -> Iterator[tuple[int, list[str]]]:
    """The number of the line where a row begins, from 1, and its fields; a quoted field may span lines.

    InputError for what is no CSV, followed by `remedy`, and for a row of several lines with more than `max_line`
    characters in all, as a quote that is never closed makes it.
    """
    widen_fields()
    limit = current_max_line(max_line)
    begin, held = 1, 0

    def counted() -> Iterator[str]:
        nonlocal held
        for line in lines:
            held += len(line) + 1
            if held > limit + 1 and reader.line_num >= begin:
                raise InputError(
                    f"{name} line {begin}: the row that begins here has a quote that is not closed within "
                    f"{format_size(limit)}; close it, or say that the file has no quotes. If the row is meant to be "
                    "so long, allow more: --max-line 1GiB"
                )
            yield line + "\n"

    reader = csv.reader(counted(), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            yield begin, row
            begin, held = reader.line_num + 1, 0
    except csv.Error as error:
        raise InputError(f"{name} line {begin}: {remedy.format(error=error)}") from None


def widen_fields() -> None:
    """Let the csv module read fields of any length: the length of lines has a limit of its own."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
