"""Blanks in a text: where they are marked, which tokens they become, and the text with words in their place.

Knows text and tokenizers. Knows no tensor and no model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import InputError
from regard.text import Tokenizer

__all__ = ["Marked", "find_blanks", "target_ids"]

# An underscore that touches a letter, a digit or a further underscore belongs to a word: snake_case, __init__.
MARK = r"(?<!\w)_+(?!\w)|\[MASK\]"


@dataclass(frozen=True)
class Marked:
    """A text, the characters [start, end) of each blank, its tokens with a mask at each blank, and those places."""

    text: str
    spans: list[tuple[int, int]]
    ids: list[int]
    places: list[int]

    def after_space(self, blank: int) -> bool:
        """Whether white space stands before a blank; byte-level tokens hold that space."""
        start = self.spans[blank][0]
        return self.text[start - 1 : start].isspace()

    def filled(self, tokenizer: Tokenizer, ids: Sequence[int]) -> str:
        """The text with a token in place of each blank; pieces such as "##ing" join the word before them."""
        written, end = "", 0
        for (start, stop), number in zip(self.spans, ids, strict=True):
            written += self.text[end:start]
            word, joins = _spelled(tokenizer, number)
            if joins:
                written = written.rstrip()
            elif written[-1:].isalnum():  # two blanks without a space between them are two words
                written += " "
            written, end = written + word, stop
        return written + self.text[end:]


def find_blanks(text: str, tokenizer: Tokenizer, mask: int) -> Marked:
    """Find every `_`, `[MASK]` and mask token of the tokenizer's own, and encode the text with masks there."""
    token = tokenizer.token(mask)
    marks = re.compile(f"{re.escape(token)}|{MARK}")
    spans = [match.span() for match in marks.finditer(text)]
    if not spans:
        raise InputError(
            f"expected a text with a blank, got {text[:60]!r}; mark it with _ or [MASK], as in "
            "'In winter the fields are _ with snow.'"
        )
    ids = tokenizer.encode(marks.sub(lambda _: token, text)).ids
    places = [place for place, number in enumerate(ids) if number == mask]
    if len(places) != len(spans):
        raise InputError(
            f"this tokenizer reads {len(spans)} blanks as {len(places)} mask tokens; "
            f"its files should list {token!r} among the special tokens"
        )
    return Marked(text, spans, ids, places)


def target_ids(targets: Sequence[str], tokenizer: Tokenizer, *, after_space: bool) -> list[int]:
    """The id of each word as it stands in a blank, once each; words that are not one token are refused together."""
    found: dict[int, None] = {}
    refused = []
    for target in targets:
        pieces = tokenizer.encode(" " + target if after_space else target, special=False)
        if len(pieces) == 1 and pieces.ids[0] != tokenizer.unknown:
            found[pieces.ids[0]] = None
        elif (number := tokenizer.vocabulary.get(target)) is not None and _spelled(tokenizer, number)[0] != target:
            found[number] = None  # a spelling that only the vocabulary has: ##ing
        else:
            refused.append(f"{target!r} is {' '.join(pieces.tokens) or 'nothing'}")
    if refused:
        raise InputError(
            f"a target must be one token of the vocabulary, but {'; '.join(refused)}: "
            "leave it out, or mark a blank for each piece and give the pieces"
        )
    return list(found)


def _spelled(tokenizer: Tokenizer, number: int) -> tuple[str, bool]:
    """A token as text, and whether it joins what stands before it: seen by writing it behind another word."""
    before = tokenizer.encode("a", special=False).ids
    both = tokenizer.decode([*before, number], special=True)
    rest = both.removeprefix(tokenizer.decode(before, special=True))
    return rest.strip(), not rest[:1].isspace()
