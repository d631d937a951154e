"""The input of bulk embedding, read twice: first to check, count and hash the texts, then to embed them.

An input that can be read only once is copied to a temporary file of the caller.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Literal, get_args

from regard.data.files import display_name
from regard.data.text_column import read_text_column
from regard.errors import InputError, check_choice

BlankLines = Literal["error", "zero", "skip"]
NumberedText = tuple[int, str]  # line number from 1, and the text


class InputChanged(InputError):
    """The input has changed since it was scanned."""


@dataclass(frozen=True)
class InputTexts:
    """A checked input: `rows` texts, and `blank` blank ones, which are rows unless they are skipped.

    `rereadable`: another process can read it again; standard input or a pipe cannot.
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
        """The rows again. Lines appended meanwhile are ignored; any other change is an error, raised at the end."""
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
    source: str | os.PathLike[str] | Sequence[str],
    *,
    column: str | int | None = None,
    blank: BlankLines = "error",
    spool: IO[str],
) -> InputTexts:
    """Read a list of texts or a file. Standard input or a pipe is copied to `spool` for the second time."""
    check_choice("way with blank lines", blank, get_args(BlankLines))
    if isinstance(source, str | os.PathLike):
        name, again = display_name(source), Path(source).is_file()
        read: Callable[[], Iterator[NumberedText]] = lambda: read_text_column(source, column=column)  # noqa: E731
    else:
        name, again, texts = "the list of texts", True, source
        read = lambda: enumerate(texts, start=1)  # noqa: E731
    digest = hashlib.sha256()
    lines = blanks = 0
    for line, text in read():
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
        raise InputError(f"{name} {'holds blank lines only' if lines else 'is empty'}; expected one text per line")

    def unspool() -> Iterator[NumberedText]:
        spool.seek(0)
        return (tuple(json.loads(row)) for row in spool)

    return InputTexts(
        name=name,
        rows=rows,
        blank=blanks,
        digest=digest.hexdigest(),
        rereadable=again,
        lines=lines,
        skip=blank == "skip",
        read=read if again else unspool,
    )


def is_blank(text: str) -> bool:
    return not text.strip()


def _feed(digest: hashlib._Hash, line: int, text: str) -> None:
    digest.update(f"{line}:{len(text)}:{text}".encode())
