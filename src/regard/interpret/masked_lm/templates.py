"""Sentences to compare: templates such as "In [1908|2018], [he|she] was employed as a _.", labels and captions.

Knows text alone: no tokenizer, no model and no number but how many words a caption names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from regard.errors import InputError

__all__ = ["ONE_AND_TWO", "WARNING", "Slot", "Template", "caption", "contrast_labels", "parse_template", "sentence_of"]

WARNING = (
    "Some of the text that language models learn from holds harmful stereotypes. This is a way to uncover such "
    "associations, not an endorsement of them."
)
ONE_AND_TWO = ("sentence one", "sentence two")  # where two sentences have no short label
LONGEST_LABEL = 15  # characters; a longer one does not fit an axis
MOST_VALUES = 400
MOST_DIGITS = 12  # of a number in a range

# Brackets without a bar or a range are text like any other: [MASK], [sic].
_SLOT = re.compile(r"\[([^\[\]]*\|[^\[\]]*|\s*\d+\s*\.\.\s*\d+\s*)\]")
_WORD = re.compile(r"\[MASK\]|\w+|[^\w\s]")
_KINDS = (  # what stands before the blank, and what fills it
    (re.compile(r"\b(?:buy|buys|bought|purchase|purchased)\W*$", re.IGNORECASE), "potential purchases"),
    (re.compile(r"\b(?:works?|worked|working|employed|jobs?|careers?) as an?\W*$", re.IGNORECASE), "jobs"),
    (re.compile(r"\b(?:named|called|name (?:is|was))\W*$", re.IGNORECASE), "names"),
)


@dataclass(frozen=True)
class Slot:
    """The alternatives of one pair of brackets; `swept` where they were written as a range of numbers."""

    values: tuple[str, ...]
    swept: bool


@dataclass(frozen=True)
class Template:
    """A text cut at its slots: `pieces` has one part more than there are slots."""

    text: str
    pieces: tuple[str, ...]
    slots: tuple[Slot, ...]

    def sentences(self) -> list[str]:
        """Every choice of values, the last slot changing fastest."""
        return [self.filled(values) for values in product(*(slot.values for slot in self.slots))]

    def filled(self, values: Sequence[str]) -> str:
        parts = [self.pieces[0]]
        for value, piece in zip(values, self.pieces[1:], strict=True):
            parts += value, piece
        return "".join(parts)


def parse_template(text: str) -> Template:
    """Find the slots of a text: `[a|b|c]` lists alternatives, `[1860..2018]` every number from one to the other."""
    pieces, slots, end = [], [], 0
    for found in _SLOT.finditer(text):
        pieces.append(text[end : found.start()])
        slots.append(_slot(found[0], found[1]))
        end = found.end()
    return Template(text, (*pieces, text[end:]), tuple(slots))


def _slot(written: str, inside: str) -> Slot:
    if "|" not in inside:
        ends = [number.strip() for number in inside.split("..")]
        if (digits := max(map(len, ends))) > MOST_DIGITS:
            shown = written if len(written) <= 60 else f"{written[:30]}..."
            raise InputError(
                f"{shown} is a range with a number of {digits:,} digits; expected at most {MOST_DIGITS}, "
                "such as [1860..2018]"
            )
        first, last = map(int, ends)
        if not 0 < last - first < MOST_VALUES:
            raise InputError(
                f"{written} is a range of {last - first + 1} numbers; expected the lower first and 2 to {MOST_VALUES} "
                "of them, such as [1860..2018]"
            )
        return Slot(tuple(str(number) for number in range(first, last + 1)), swept=True)
    values = tuple(value.strip() for value in inside.split("|"))
    if "" in values or len(set(values)) < len(values):
        raise InputError(f"{written} has an empty or a repeated alternative; expected different ones, such as [he|she]")
    return Slot(values, swept=False)


def contrast_labels(a: str, b: str) -> tuple[str, str]:
    """What is different in two sentences: each without the words that both begin and end with.

    `ONE_AND_TWO` where that leaves nothing of one of them, or more than fits an axis.
    """
    words = [[(match[0].lower(), match.span()) for match in _WORD.finditer(text)] for text in (a, b)]
    shorter = min(map(len, words))
    same = [x[0] == y[0] for x, y in zip(*words, strict=False)]
    begin = same.index(False) if False in same else shorter
    same = [x[0] == y[0] for x, y in zip(reversed(words[0]), reversed(words[1]), strict=False)]
    tail = min(same.index(False) if False in same else shorter, shorter - begin)
    found = []
    for text, parts in zip((a, b), words, strict=True):
        rest = parts[begin : len(parts) - tail]
        found.append(text[rest[0][1][0] : rest[-1][1][1]] if rest else "")
    if any(not 0 < len(label) <= LONGEST_LABEL for label in found):
        return ONE_AND_TWO
    return found[0], found[1]


def sentence_of(label: str) -> str:
    """A label as a caption or an axis says it: "Texas sentence", but "sentence one"."""
    return label if label in ONE_AND_TWO else f"{label} sentence"


def caption(called: str | None, text: str, pair: Sequence[str], more_a: Sequence[str], more_b: Sequence[str]) -> str:
    """What a chart says in words: `more_a` and `more_b` are the tokens that lean most to either side.

    `called` is the model that was asked; None where the pair is of two models.
    """
    kind = next((kind for before, kind in _KINDS if before.search(re.split(r"_|\[MASK\]", text)[0])), "words")
    a, b = ("the first sentence", "the second") if tuple(pair) == ONE_AND_TWO else pair
    said: list[str] = []
    for one, other, tokens in ((a, b, more_a), (b, a, more_b)):
        if tokens and called:
            opening = "It associates these" if said else f"{called} associates these {kind}"
            said.append(f"{opening} more with {one} than {other}: {', '.join(tokens)}.")
        elif tokens:
            said.append(f"{one} gives these {kind} a higher logit than {other}: {', '.join(tokens)}.")
    return " ".join(said) or f"There is no difference between {a} and {b}."
