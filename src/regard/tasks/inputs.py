"""Texts to rows of tokens as a family of models wants them, and long texts to windows that overlap.

Knows a tokenizer and the special tokens of a family. Knows no labels, no tensors and no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import InputError
from regard.text import Encoding, Tokenizer
from regard.text.encoding import longest_first

__all__ = ["MIN_LENGTH", "InputBuilder", "InputSequence", "max_context_windows", "split_windows"]

MIN_LENGTH = 8  # tokens of a row, of which up to four are special


@dataclass(frozen=True, eq=False)
class InputSequence:
    """What a model reads at once. `positions` are the tokens whose vectors are asked for; None: all of them."""

    ids: list[int]
    segments: list[int]
    positions: list[int] | None
    num_truncated: int = 0  # tokens that did not fit

    def __len__(self) -> int:
        return len(self.ids)


class InputBuilder:
    """Makes rows of at most `limit` tokens for a family.

    A BERT reads [CLS] A [SEP] B [SEP], a RoBERTa one [SEP] more before B, and is asked for its first token. A GPT sees
    only what came before: it reads begin A end B end and is asked for its last token, which has seen all of it.
    """

    def __init__(self, tokenizer: Tokenizer, *, family: str, limit: int) -> None:
        self.tokenizer, self.family, self.limit = tokenizer, family, limit
        self.causal = family == "gpt2"
        if self.causal and tokenizer.eos is None:
            raise InputError(
                "this GPT's tokenizer has no token that ends a text, which a task needs; use another model"
            )
        if limit < MIN_LENGTH:
            raise InputError(f"rows of {limit} tokens are too short for a task; use {MIN_LENGTH} or more")

    def sequences(self, texts: Sequence[tuple[str, str | None]]) -> list[InputSequence]:
        """A row a text or pair, cut where it is too long, with the place that speaks for all of it."""
        if self.causal:
            return self._causal(texts)
        inputs: list[str | tuple[str, str]] = [a if b is None else (a, b) for a, b in texts]
        found = self.tokenizer.encode_batch(inputs, max_length=self.limit)
        return [InputSequence(one.ids, one.segments, [0], one.cut) for one in found]

    def tokens(self, texts: Sequence[str]) -> list[Encoding]:
        """Texts without special tokens, whole."""
        return self.tokenizer.encode_batch(list(texts), special=False)

    @property
    def context_length(self) -> int:
        """How many tokens of one text a row holds."""
        return self.limit - (1 if self.causal else 2)

    def context_length_with_question(self, question: int) -> int:
        """How many tokens of a context a row holds beside a question of so many."""
        return self.limit - question - (2 if self.causal else 2 + self._between)

    def window(self, ids: list[int], positions: list[int]) -> InputSequence:
        """A row of some tokens of a text; `positions` count in them."""
        row = [self._begin, *ids] if self.causal else [self._cls, *ids, self._sep]
        return InputSequence(row, [0] * len(row), [place + 1 for place in positions])

    def question(self, question: list[int], context: list[int]) -> tuple[InputSequence, int]:
        """A row of a question and a part of its context, all of it asked for, and where the context begins."""
        if self.causal:
            ids = [self._begin, *question, self._end, *context]
            return InputSequence(ids, [0] * len(ids), None), len(question) + 2
        ids = [self._cls, *question, *[self._sep] * self._between, *context, self._sep]
        first = 1 + len(question) + self._between
        second = 0 if self.family == "roberta" else 1
        return InputSequence(ids, [0] * first + [second] * (len(ids) - first), None), first

    def _causal(self, texts: Sequence[tuple[str, str | None]]) -> list[InputSequence]:
        firsts = self.tokens([a for a, _ in texts])
        seconds = iter(self.tokens([b for _, b in texts if b is not None]))
        found = []
        for (_, text), first in zip(texts, firsts, strict=True):
            second = None if text is None else next(seconds).ids
            room = self.limit - (2 if second is None else 3)
            kept, other = longest_first(len(first), len(second or ()), room)
            ids = [self._begin, *first.ids[:kept], self._end]
            if second is not None:
                ids += [*second[:other], self._end]
            cut = len(first) - kept + len(second or ()) - other
            found.append(InputSequence(ids, [0] * len(ids), [len(ids) - 1], cut))
        return found

    @property
    def _between(self) -> int:
        """How many [SEP] part two texts."""
        return 2 if self.family == "roberta" else 1

    @property
    def _begin(self) -> int:
        return self._end if self.tokenizer.bos is None else self.tokenizer.bos

    @property
    def _end(self) -> int:
        assert self.tokenizer.eos is not None
        return self.tokenizer.eos

    @property
    def _cls(self) -> int:
        return self._named(self.tokenizer.cls, "[CLS]")

    @property
    def _sep(self) -> int:
        return self._named(self.tokenizer.sep, "[SEP]")

    def _named(self, token: int | None, name: str) -> int:
        if token is None:
            raise InputError(f"this model's tokenizer has no {name}, which goes around a text; use another model")
        return token


def split_windows(count: int, room: int, overlap: int) -> list[tuple[int, int]]:
    """[start, end) of windows of `room` over `count` tokens, each sharing `overlap` with the one before."""
    step = max(room - overlap, 1)
    starts = range(0, max(count - overlap, 1), step)
    return [(start, min(start + room, count)) for start in starts]


def max_context_windows(count: int, spans: Sequence[tuple[int, int]]) -> list[int]:
    """For each of `count` tokens the window in which it has the most text on its shorter side, the first of equals."""
    if len(spans) == 1:
        return [0] * count
    found, most = [0] * count, [-1] * count
    for window, (start, end) in enumerate(spans):
        for token in range(start, end):
            context = min(token - start, end - 1 - token)
            if context > most[token]:
                found[token], most[token] = window, context
    return found
