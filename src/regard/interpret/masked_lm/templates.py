"""Sentence templates such as "In [1908|2018], [he|she] was employed as a _.", and the labels and captions of charts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from regard.errors import InputError

WARNING = (
    "Some of the text that language models learn from contains harmful stereotypes. This tool uncovers such "
    "associations; it does not endorse them."
)
ONE_AND_TWO = ("sentence one", "sentence two")  # if two sentences have no short labels
MAX_LABEL = 15  # characters; a longer one does not fit an axis
MAX_VALUES = 400
MAX_DIGITS = 12  # of a number in a range

# Brackets without a bar or a range are plain text: [MASK], [sic].
_SLOT = re.compile(r"\[([^\[\]]*\|[^\[\]]*|\s*\d+\s*\.\.\s*\d+\s*)\]")
_WORD = re.compile(r"\[MASK\]|\w+|[^\w\s]")
_KINDS = (  # the words before the blank, and what fills it
    (re.compile(r"\b(?:buy|buys|bought|purchase|purchased)\W*$", re.IGNORECASE), "potential purchases"),
    (re.compile(r"\b(?:works?|worked|working|employed|jobs?|careers?) as an?\W*$", re.IGNORECASE), "jobs"),
    (re.compile(r"\b(?:named|called|name (?:is|was))\W*$", re.IGNORECASE), "names"),
)


@dataclass(frozen=True)
class Slot:
    """The alternatives of one pair of brackets; `is_range` if they were written as a range of numbers."""

    values: tuple[str, ...]
    is_range: bool


@dataclass(frozen=True)
class Template:
    """A text split at its slots: there is one piece more than there are slots."""

    text: str
    pieces: tuple[str, ...]
    slots: tuple[Slot, ...]

    def sentences(self) -> list[str]:
        """Every combination of values, the last slot changing fastest."""
        return [self.fill(values) for values in product(*(slot.values for slot in self.slots))]

    def fill(self, values: Sequence[str]) -> str:
        parts = [self.pieces[0]]
        for value, piece in zip(values, self.pieces[1:], strict=True):
            parts += value, piece
        return "".join(parts)


def parse_template(text: str) -> Template:
    """Find the slots of a text: `[a|b|c]` lists alternatives, `[1860..2018]` is every number of a range."""
    pieces, slots, end = [], [], 0
    for match in _SLOT.finditer(text):
        pieces.append(text[end : match.start()])
        slots.append(_slot(match[0], match[1]))
        end = match.end()
    return Template(text, (*pieces, text[end:]), tuple(slots))


def _slot(written: str, inside: str) -> Slot:
    if "|" not in inside:
        ends = [number.strip() for number in inside.split("..")]
        if (digits := max(map(len, ends))) > MAX_DIGITS:
            excerpt = written if len(written) <= 60 else f"{written[:30]}..."
            raise InputError(
                f"{excerpt} is a range with a number of {digits:,} digits; expected at most {MAX_DIGITS}, "
                "such as [1860..2018]"
            )
        first, last = map(int, ends)
        if not 0 < last - first < MAX_VALUES:
            raise InputError(
                f"{written} is a range of {last - first + 1} numbers; expected the lower first and 2 to {MAX_VALUES} "
                "of them, such as [1860..2018]"
            )
        return Slot(tuple(str(number) for number in range(first, last + 1)), is_range=True)
    values = tuple(value.strip() for value in inside.split("|"))
    if "" in values or len(set(values)) < len(values):
        raise InputError(f"{written} has an empty or a repeated alternative; expected different ones, such as [he|she]")
    return Slot(values, is_range=False)


def contrast_labels(a: str, b: str) -> tuple[str, str]:
    """Where two sentences differ: each without the words that both begin and end with.

    `ONE_AND_TWO` if that leaves nothing of one of them, or more than fits an axis.
    """
    words = [[(match[0].lower(), match.span()) for match in _WORD.finditer(text)] for text in (a, b)]
    shorter = min(map(len, words))
    same = [x[0] == y[0] for x, y in zip(*words, strict=False)]
    begin = same.index(False) if False in same else shorter
    same = [x[0] == y[0] for x, y in zip(reversed(words[0]), reversed(words[1]), strict=False)]
    tail = min(same.index(False) if False in same else shorter, shorter - begin)
    labels = []
    for text, parts in zip((a, b), words, strict=True):
        rest = parts[begin : len(parts) - tail]
        labels.append(text[rest[0][1][0] : rest[-1][1][1]] if rest else "")
    if any(not 0 < len(label) <= MAX_LABEL for label in labels):
        return ONE_AND_TWO
    return labels[0], labels[1]


def sentence_of(label: str) -> str:
    """A label in a caption or on an axis: "Texas sentence", but "sentence one"."""
    return label if label in ONE_AND_TWO else f"{label} sentence"


def caption(model: str | None, text: str, pair: Sequence[str], more_a: Sequence[str], more_b: Sequence[str]) -> str:
    """A chart in words: `more_a` and `more_b` are the tokens that differ most to either side.

    `model` is the name of the model; None if two models are compared.
    """
    kind = next((kind for before, kind in _KINDS if before.search(re.split(r"_|\[MASK\]", text)[0])), "words")
    a, b = ("the first sentence", "the second") if tuple(pair) == ONE_AND_TWO else pair
    sentences: list[str] = []
    for one, other, tokens in ((a, b, more_a), (b, a, more_b)):
        if tokens and model:
            opening = "It associates these" if sentences else f"{model} associates these {kind}"
            sentences.append(f"{opening} more with {one} than {other}: {', '.join(tokens)}.")
        elif tokens:
            sentences.append(f"{one} gives these {kind} a higher logit than {other}: {', '.join(tokens)}.")
    return " ".join(sentences) or f"There is no difference between {a} and {b}."
