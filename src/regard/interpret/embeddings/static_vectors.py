"""Reads static word vectors in the text format of word2vec and GloVe: a word and its numbers per line.

word2vec's first line of counts is optional. Only the requested words are kept, however large the file is.
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

FORMAT = "expected a word and its numbers with spaces between them, as word2vec and GloVe write them"


def read_static_vectors(path: str | os.PathLike[str], words: Collection[str]) -> dict[str, NDArray[np.float32]]:
    """The vectors of the words that the file has; the first one counts. All have the same width."""
    missing, vectors = set(words), dict[str, NDArray[np.float32]]()
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
            if fields[0] in missing:
                assert width is not None
                vectors[fields[0]] = _vector(line, width, f"{display_name(path)} line {number}")
                missing.remove(fields[0])
                if not missing:
                    break
    if width is None:
        raise InputError(f"{display_name(path)} is empty; {FORMAT}")
    return vectors


def _is_count(line: str) -> bool:
    """Whether a first line is that of word2vec: the number of words and the width of the vectors."""
    fields = line.split()
    return len(fields) == 2 and all(map(is_count, fields))


def _width(line: str) -> int | None:
    """The width of the vectors, from the first line."""
    fields = line.split()
    if _is_count(line):
        return int(fields[1])
    return len(fields) - 1 if len(fields) > 1 and all(map(_is_number, fields[1:])) else None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _vector(line: str, width: int, where: str) -> NDArray[np.float32]:
    fields = line.split()[1:]
    wrong = next((field for field in fields if not _is_number(field)), None)
    if wrong is not None:
        raise InputError(f"{where}: {wrong[:20]!r} is not a number; {FORMAT}")
    if len(fields) != width:
        raise InputError(
            f"{where}: {len(fields)} numbers after the word, but the first line has {width}; fix this line"
        )
    return np.array(fields, dtype=np.float32)
