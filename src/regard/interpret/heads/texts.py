"""The texts of a census: lines made into pairs, and how many lines were left out.

Knows lines and tabs. Knows no model and no file.
"""

from __future__ import annotations

from collections.abc import Iterable

from regard.errors import InputError

__all__ = ["LIMIT", "TextPairs", "read_text_pairs"]

LIMIT = 100  # texts or pairs, unless another number is asked for


class TextPairs(list[tuple[str, str | None]]):
    """Texts and pairs in their order. `left_out` lines with text were given beside those they are made of."""

    left_out = 0


def read_text_pairs(lines: Iterable[str], *, limit: int = LIMIT) -> TextPairs:
    """The first `limit` texts: a line with a tab is a pair, and so are two lines that follow each other.

    The lines behind them are read as well, to be counted.
    """
    found = TextPairs()
    before: str | None = None
    for line in lines:
        first, _, second = line.partition("\t")
        first, second = first.strip(), second.strip()
        if len(found) == limit:
            found.left_out += bool(first or second)
        elif first and second:
            found.append((first, second))
        elif text := first or second:
            found += [] if before is None else [(before, text)]
            before = text if before is None else None
    if before is not None:
        if len(found) < limit:
            found.append((before, None))
        else:
            found.left_out += 1
    if not found:
        raise InputError("there is no text; expected one a line, or pairs with a tab between them")
    return found
