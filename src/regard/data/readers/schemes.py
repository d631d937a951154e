"""Tags of words, in the three schemes people write them in, to the one that is used here: IOB2.

IOB2 begins every entity with B-. IOB1 uses B- only between two entities of one type. BIOES also marks the last word
(E-, or L-) and an entity of one word (S-, or U-). Knows no file and no text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

from regard.errors import check_choice

__all__ = ["SCHEMES", "Scheme", "detect_scheme", "is_tag", "strays", "to_iob2"]

Scheme = Literal["IOB1", "IOB2", "BIOES"]
SCHEMES: tuple[Scheme, ...] = ("IOB1", "IOB2", "BIOES")

_TAG = re.compile(r"O|[BIESLU]-\S.*")
_BEGINS = "BSU"
_ENDS = "ESLU"


@lru_cache(maxsize=1024)  # a file has few different tags and asks for each word
def is_tag(tag: str) -> bool:
    """O, or a sign of a scheme before a type: B-PER."""
    return _TAG.fullmatch(tag) is not None


def detect_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme that explains most tags; IOB2 where nothing tells. CoNLL-2003's IOB1 has a few B- without need."""
    inside, outside = 0, 0  # entities that stand alone and begin with I-, with B-
    for tags in sentences:
        before = "O"
        for tag in tags:
            if tag[0] in _ENDS:
                return "BIOES"
            alone = tag[2:] != before[2:]
            inside += tag[0] == "I" and alone
            outside += tag[0] == "B" and alone
            before = tag
    return "IOB1" if inside > outside else "IOB2"


def strays(sentences: Iterable[Sequence[str]]) -> int:
    """How many entities begin with I-, which in IOB2 none should."""
    pairs = (pair for tags in sentences for pair in zip(("O", *tags), tags, strict=False))
    return sum(tag[0] == "I" and tag[2:] != before[2:] for before, tag in pairs)


def to_iob2(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """The same entities in IOB2. What continues nothing, an I- after O or after another type, begins an entity."""
    check_choice("scheme", scheme, SCHEMES)
    converted: list[str] = []
    open_type = ""  # of the entity that the next word may continue
    for tag in tags:
        sign, kind = tag[0], tag[2:]
        if sign == "O":
            converted.append("O")
        else:
            begins = sign in _BEGINS or kind != open_type
            converted.append(f"{'B' if begins else 'I'}-{kind}")
        open_type = "" if scheme == "BIOES" and sign in _ENDS else kind
    return converted
