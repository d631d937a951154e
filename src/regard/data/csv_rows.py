"""CSV rows with line numbers, and a limit for rows whose quotes are never closed."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from regard.data.line_limit import current_max_line
from regard.errors import InputError
from regard.files.file_input import format_size

# The csv module limits fields to 131,072 characters by default; the setting is global.
_MAX_FIELD = 2**31 - 1


def csv_rows(
    lines: Iterable[str], name: str, *, delimiter: str = ",", remedy: str, max_line: int | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number (from 1) where each row starts, and its fields; a quoted field may span lines.

    Raises InputError with `remedy` for invalid CSV, and for a row of several lines with more than `max_line` characters
    in total, which usually means that a quote is not closed.
    """
    widen_fields()
    limit = current_max_line(max_line)
    start, length = 1, 0

    def checked_lines() -> Iterator[str]:
        nonlocal length
        for line in lines:
            length += len(line) + 1
            if length > limit + 1 and reader.line_num >= start:
                raise InputError(
                    f"{name} line {start}: the row that starts here has a quote that is not closed within "
                    f"{format_size(limit)}; close it, or turn off quoting. If the row is really that "
                    "long, raise the limit: --max-line 1GiB"
                )
            yield line + "\n"

    reader = csv.reader(checked_lines(), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            yield start, row
            start, length = reader.line_num + 1, 0
    except csv.Error as error:
        raise InputError(f"{name} line {start}: {remedy.format(error=error)}") from None


def widen_fields() -> None:
    """Let the csv module read fields of any length; the length of lines is limited separately."""
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_FIELD))
