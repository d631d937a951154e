"""The texts of an input, read twice: once to check, count and hash them, once to embed them.

Knows lines and blanks; knows no model. What can be read only once is copied to a file that the caller lends.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Literal, get_args

from regard.data.files import display_name
from regard.data.text_column import read_text_column
from regard.errors import InputError, check_choice

__all__ = ["BlankLines", "InputChanged", "InputTexts", "NumberedText", "is_blank", "scan_texts"]

BlankLines = Literal["error", "zero", "skip"]
NumberedText = tuple[int, str]  # the number of a line, from 1, and the text on it


class InputChanged(InputError):
    """The input is not what it was when it was scanned."""


@dataclass(frozen=True)
class InputTexts:
    """An input that was read once and found good: `rows` texts, and `blank` blank ones, which are rows unless skipped.

    `again`: whether another process could read it again, or it was read from a pipe and is gone.
    """

    name: str
    rows: int
    blank: int
    digest: str
    rereadable: bool
    lines: int
    skip: bool
    read: Callable[[], Iterator[NumberedText]]

    def __iter__(self) -> Iterator[NumberedText]:
        """The rows once more. Lines added behind them are left alone; any other change is an error, at the end."""
        digest, trouble = hashlib.sha256(), ""
        try:
            for line, text in islice(self.read(), self.lines):
                _feed(digest, line, text)
                if not (self.skip and is_blank(text)):
                    yield line, text
        except InputError as error:
            trouble = f" ({error})"
        if trouble or digest.hexdigest() != self.digest:
            raise InputChanged(
                f"{self.name} was changed while it was read{trouble}; nothing is kept: run the command again"
            )


def scan_texts(
    path: str | os.PathLike[str], *, column: str | int | None = None, blank: BlankLines = "error", spool: IO[str]
) -> InputTexts:
    """Read all of the input. What is no regular file (standard input, a pipe) goes to `spool` for the second time."""
    check_choice("way with blank lines", blank, get_args(BlankLines))
    name, digest, again = display_name(path), hashlib.sha256(), Path(path).is_file()
    lines = blanks = 0
    for line, text in read_text_column(path, column=column):
        lines += 1
        _feed(digest, line, text)
        if is_blank(text):
            blanks += 1
            if blank == "error":
                raise InputError(
                    f"{name} line {line} is blank; mend it, or choose --blank zero (a vector of zeros) or --blank skip"
                )
        if not again:
            spool.write(json.dumps((line, text)) + "\n")
    rows = lines - (blanks if blank == "skip" else 0)
    if not rows:
        raise InputError(f"{name} {'holds blank lines only' if lines else 'is empty'}; expected one text a line")

    def unspool() -> Iterator[NumberedText]:
        spool.seek(0)
        return (tuple(json.loads(row)) for row in spool)

    read = (lambda: read_text_column(path, column=column)) if again else unspool
    return InputTexts(
        name=name,
        rows=rows,
        blank=blanks,
        digest=digest.hexdigest(),
        rereadable=again,
        lines=lines,
        skip=blank == "skip",
        read=read,
    )


def is_blank(text: str) -> bool:
    return not text.strip()


def _feed(digest: hashlib._Hash, line: int, text: str) -> None:
    digest.update(f"{line}:{len(text)}:{text}".encode())
