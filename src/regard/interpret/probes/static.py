"""Vectors of words that depend on no text: the text format of word2vec and GloVe, a word and its numbers a line.

Knows that format, with word2vec's first line of counts or without it. Keeps only the words that are asked for, however
large the file is. Knows no model.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from regard.data.files import display_name, open_text
from regard.errors import InputError
from regard.wording import is_count

__all__ = ["read_static"]

FORMAT = "expected a word and its numbers with spaces between them, as word2vec and GloVe write them"


def read_static(path: str | os.PathLike[str], words: Collection[str]) -> dict[str, NDArray[np.float32]]:
    """The vectors of those of the words that the file has, the first of each; all have one width."""
    wanted, found = set(words), dict[str, NDArray[np.float32]]()
    width: int | None = None
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            fields = line.split(" ", 1)
            if number == 1:
                width = _width(line)
                if width is None:
                    raise InputError(f"{display_name(path)} line 1: {FORMAT}; found {line[:40]!r}")
                if _is_count(line):
                    continue
            if fields[0] in wanted:
                assert width is not None
                found[fields[0]] = _vector(line, width, f"{display_name(path)} line {number}")
                wanted.remove(fields[0])
                if not wanted:
                    break
    if width is None:
        raise InputError(f"{display_name(path)} is empty; {FORMAT}")
    return found


def _is_count(line: str) -> bool:
    """Whether a first line is word2vec's: how many words there are, and how wide the vectors."""
    fields = line.split()
    return len(fields) == 2 and all(map(is_count, fields))


def _width(line: str) -> int | None:
    """How wide the vectors are that begin with this line."""
    fields = line.split()
    if _is_count(line):
        return int(fields[1])
    return len(fields) - 1 if len(fields) > 1 and all(map(_is_number, fields[1:])) else None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _vector(line: str, width: int, place: str) -> NDArray[np.float32]:
    fields = line.split()[1:]
    wrong = next((field for field in fields if not _is_number(field)), None)
    if wrong is not None:
        raise InputError(f"{place}: {wrong[:20]!r} is no number; {FORMAT}")
    if len(fields) != width:
        raise InputError(f"{place}: {len(fields)} numbers behind the word, where the first line has {width}; mend it")
    return np.array(fields, dtype=np.float32)
