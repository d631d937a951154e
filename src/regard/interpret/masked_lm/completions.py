"""One sentence, each of its words hidden in turn: what would the model have put there?

A word of several pieces is hidden behind one mask, so that every completion is one token. Blanks stay blanks while
other words are hidden. Knows a masked model and its tokenizer; knows nothing of charts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from regard.checkpoints.ready import Masked, evaluating
from regard.data.batch import group_by_token_budget
from regard.errors import InputError
from regard.inference.masked_lm import BLANK_PATTERN, Candidate
from regard.interpret.masked_lm.predictions import NamedModel
from regard.text import Encoding

__all__ = ["COMPLETIONS", "MaskedWord", "WordCompletions", "complete_words"]

COMPLETIONS = 90
MOST_WORDS = 100  # each is a pass of its own over the whole text


@dataclass(frozen=True)
class MaskedWord:
    """A word as the text has it ("_" for a blank), whether a space stands before it, and what may take its place."""

    word: str
    spaced: bool
    completions: list[Candidate]


@dataclass(frozen=True)
class WordCompletions:
    text: str
    model: str
    words: list[MaskedWord]

    def document(self) -> dict[str, object]:
        """What `regard compare --json` prints of one sentence."""
        words = [
            {
                "word": word.word,
                "completions": [{"token": c.token, "probability": c.probability} for c in word.completions],
            }
            for word in self.words
        ]
        return {"text": self.text, "model": self.model, "words": words}


def complete_words(subject: NamedModel, text: str, *, top: int = COMPLETIONS) -> WordCompletions:
    """The likeliest `top` tokens for every word of a text of at most MOST_WORDS, likeliest first."""
    asked = Masked.of(subject.model, subject.tokenizer, doing="hiding words")
    name = asked.tokenizer.token(asked.mask)
    written = re.sub(f"{re.escape(name)}|{BLANK_PATTERN}", lambda _: name, text)
    encoded = asked.tokenizer.encode(written)
    groups = _words(encoded)
    if not groups:
        raise InputError(f"expected a sentence, got {text[:60]!r}; give one such as 'In Texas, they like to buy _.'")
    if len(groups) > MOST_WORDS:
        raise InputError(
            f"the text has {len(groups):,} words and signs, and each is hidden in turn; at most {MOST_WORDS} can be. "
            f"Shorten it by {len(groups) - MOST_WORDS:,}, or give two texts with a blank _ to compare them"
        )
    if len(encoded) > asked.limit:
        raise InputError(
            f"the text has {len(encoded)} tokens, special ones included, and {subject.label} reads {asked.limit}; "
            f"shorten it by {len(encoded) - asked.limit}"
        )
    rows = [[*encoded.ids[: group[0]], asked.mask, *encoded.ids[group[-1] + 1 :]] for group in groups]
    found = _best(asked, rows, [group[0] for group in groups], top)
    words = []
    for group, candidates in zip(groups, found, strict=True):
        start, end = encoded.offsets[group[0]][0], encoded.offsets[group[-1]][1]
        spelled = written[start:end].strip()
        spaced = written[max(0, start - 1) : start + 1].strip() != written[max(0, start - 1) : start + 1]
        words.append(MaskedWord("_" if spelled == name else spelled, spaced, candidates))
    return WordCompletions(text, subject.label, words)


def _words(encoded: Encoding) -> list[list[int]]:
    """The places of each word's pieces."""
    groups: list[list[int]] = []
    before: int | None = None
    for place, (word, special) in enumerate(zip(encoded.words, encoded.special, strict=True)):
        if special:
            continue
        if groups and word is not None and word == before:
            groups[-1].append(place)
        else:
            groups.append([place])
        before = word
    return groups


def _best(asked: Masked, rows: list[list[int]], places: list[int], top: int) -> list[list[Candidate]]:
    """The likeliest tokens at one place of each row."""
    known = torch.tensor([number for number in asked.tokenizer.vocabulary.values() if number < len(asked.head.bias)])
    found: list[list[Candidate]] = [[] for _ in rows]
    with evaluating(asked.model):
        for group in group_by_token_budget([len(row) for row in rows], asked.budget):
            wanted = [(number, places[row]) for number, row in enumerate(group)]
            likely = asked.logits([rows[row] for row in group], wanted).softmax(-1).cpu()[:, known]
            best = likely.topk(min(top, len(known)))
            for row, ids, values in zip(group, known[best.indices].tolist(), best.values.tolist(), strict=True):
                found[row] = [Candidate(asked.tokenizer.token(n), n, p) for n, p in zip(ids, values, strict=True)]
    return found
