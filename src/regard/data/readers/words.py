"""Where the words of a plain text lie, as CoNLL-2003 parts them: punctuation apart, what belongs together whole.

Knows characters and nothing of a language's words, a tokenizer or a file.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

__all__ = ["split_words"]

# The shape of a text has one sign for each of its characters: a letter, 0, a blank, a mark that may join, # for the
# others, and c for an ending. So a letter is what Unicode calls one, with its combining marks, which \w would part.
_SHAPE = re.compile(
    r"""
    (?<![a0_.])(?:a\.){2,}(?![a0_])       # U.S. with its last point
    | [a0_]+ (?: [.&@'-][a0_]+ | (?<=0)[,:/](?=0)[a0_]+ )*
    | c+
    | (?P<mark>[^\sa0_])(?P=mark)*       # a run of one mark: ... or --
    """,
    re.VERBOSE,
)
_ENDING = re.compile(r"(?:n['\u2019]t|['\u2019](?:s|re|ve|ll|d|m))(?!\w)", re.IGNORECASE)  # John's, didn't
_RUN = re.compile(r"(.)\1*", re.DOTALL)


def split_words(text: str) -> tuple[tuple[int, int], ...]:
    """The words and marks of a text as [start, end) in characters, from left to right; only blanks lie between them."""
    shape = list(map(_kind, text))
    for ending in _ENDING.finditer(text):
        shape[ending.start() : ending.end()] = "c" * len(ending[0])
    spans = []
    for match in _SHAPE.finditer("".join(shape)):
        start, end = match.span()
        if match["mark"] == "#":  # different marks look alike in the shape
            spans += [(start + run.start(), start + run.end()) for run in _RUN.finditer(text[start:end])]
        else:
            spans.append((start, end))
    return tuple(spans)


@lru_cache(maxsize=4096)
def _kind(character: str) -> str:
    if character.isspace():
        return " "
    if character in "'\u2019":
        return "'"
    if character in ".&@-,:/_":
        return character
    category = unicodedata.category(character)
    if category[0] == "N":
        return "0"
    return "#" if category[0] in "PS" else "a"
