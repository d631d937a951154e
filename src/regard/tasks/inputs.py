"""Builds token sequences with the special tokens of a model family, and splits long texts into windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from regard.errors import InputError
from regard.models.family import get_family
from regard.text import Encoding, Tokenizer
from regard.text.tokenizer import longest_first, only_first

MIN_LENGTH = 8  # tokens per sequence; up to four of them are special


@dataclass(frozen=True, eq=False)
class InputSequence:
    """One sequence for a model. `positions` are the tokens to predict from; None selects all of them."""

    ids: list[int]
    segments: list[int]
    positions: list[int] | None
    num_truncated: int = 0  # tokens that did not fit

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class VectorSettings:
    """How a model that predicts from vectors of texts makes them; each of the `num_texts` is a sequence of its own."""

    pooling: str = "mean"
    normalize: bool = False
    num_texts: int = 1


@dataclass(frozen=True)
class PublishedInputs:
    """What the position that a published model predicts from depends on: tokens of its config.json.

    A model with an `end_token_id` predicts from the last of these.
    """

    pad_token_id: int | None = None
    end_token_id: int | None = None


class Frame(NamedTuple):
    """The special tokens before a text or a pair, between its texts and after it."""

    before: list[int]
    between: list[int]
    after: list[int]

    @classmethod
    def of(cls, encoding: Encoding) -> Frame:
        """The special tokens of an encoded text or pair."""
        marked = zip(encoding.ids, encoding.special_tokens_mask, strict=True)
        runs = [(special, [number for number, _ in group]) for special, group in groupby(marked, key=itemgetter(1))]
        before = runs[0][1] if runs[0][0] else []
        after = runs[-1][1] if runs[-1][0] and len(runs) > 1 else []
        inside = [ids for special, ids in runs[1:-1] if special]
        return cls(before, inside[0] if inside else [], after)


class InputBuilder:
    """Builds sequences of at most `max_length` tokens; with `vectors`, a sequence for each text of a pair.

    BERT reads [CLS] A [SEP] B [SEP], RoBERTa has one more [SEP] before B; they predict from the first token. A causal
    model attends only to previous tokens: it reads BOS A EOS B EOS and predicts from the last token.

    With `published`, the inputs are those of transformers: the special tokens are those that the tokenizer adds, and a
    causal model predicts from the last token that is not padding, an encoder-decoder from the last end token.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        family: str,
        max_length: int,
        vectors: VectorSettings | None = None,
        published: PublishedInputs | None = None,
    ) -> None:
        self.tokenizer, self.family, self.max_length, self.vectors = tokenizer, family, max_length, vectors
        self.published = published
        self.causal = get_family(family).can("causal-lm")
        if self.causal and published is None:
            _required(tokenizer.eos_token_id, "end-of-text")
        if max_length < MIN_LENGTH:
            raise InputError(f"sequences of {max_length} tokens are too short for a task; use {MIN_LENGTH} or more")

    def sequences(self, texts: Sequence[tuple[str, str | None]], *, keep_second: bool = False) -> list[InputSequence]:
        """One sequence per text or pair, truncated if it is too long, that predicts from one position.

        The longer text of a pair loses tokens first; with `keep_second` only the first one does.
        """
        if self.causal and self.published is None:
            return self._causal(texts, keep_second=keep_second)
        inputs: list[str | tuple[str, str]] = [a if b is None else (a, b) for a, b in texts]
        rows = self.tokenizer.ids_and_segments(inputs, max_length=self.max_length, keep_second=keep_second)
        if self.published is None:
            return [InputSequence(ids, segments, [0], truncated) for ids, segments, truncated in rows]
        segmented = self.tokenizer.has_segments
        return [
            InputSequence(ids, segments if segmented else [0] * len(ids), [self._read_at(ids)], truncated)
            for ids, segments, truncated in rows
        ]

    def _read_at(self, ids: Sequence[int]) -> int:
        """The position that a published model predicts from."""
        if not ids:
            raise InputError("the tokenizer gives no token for an empty text, and this model needs one; leave it out")
        assert self.published is not None
        pad, end = self.published.pad_token_id, self.published.end_token_id
        if end is not None:
            if end not in ids:
                raise InputError(f"this model predicts from its end token, {end}, which its tokenizer does not add")
            return max(index for index, token in enumerate(ids) if token == end)
        return max((index for index, token in enumerate(ids) if token != pad), default=0) if self.causal else 0

    def inputs(self, texts: Sequence[tuple[str, str | None]]) -> list[tuple[InputSequence, ...]]:
        """The sequences of each text or pair: one, or one per text for a model that predicts from vectors."""
        if self.vectors is None:
            return [(sequence,) for sequence in self.sequences(texts)]
        count = self.vectors.num_texts
        for text, second in texts:
            if (second is None) != (count == 1):
                raise InputError(
                    f"this model was trained on {'single texts' if count == 1 else 'pairs of texts'}, and "
                    f"{text[:40]!r} comes {'alone' if second is None else 'with a second text'}"
                )
        flat = self.sequences([(text, None) for pair in texts for text in pair if text is not None])
        marked = [replace(one, positions=[] if index % count else [0]) for index, one in enumerate(flat)]
        return [tuple(marked[start : start + count]) for start in range(0, len(marked), count)]

    def tokens(self, texts: Sequence[str]) -> list[Encoding]:
        """Texts without special tokens, not truncated."""
        return self.tokenizer.encode_batch(list(texts), add_special_tokens=False)

    @property
    def context_length(self) -> int:
        """Tokens of one text per sequence."""
        frame = self._frame
        return self.max_length - len(frame.before) - len(frame.after)

    def context_length_with_question(self, question: int) -> int:
        """Tokens of a context per sequence, next to a question of `question` tokens."""
        frame = self._pair_frame
        return self.max_length - question - len(frame.before) - len(frame.between) - len(frame.after)

    def window(self, ids: list[int], positions: list[int]) -> InputSequence:
        """A sequence of some tokens of a text; `positions` are indices into `ids`."""
        before, _, after = self._frame
        ids = [*before, *ids, *after]
        return InputSequence(ids, [0] * len(ids), [position + len(before) for position in positions])

    def question(self, question: list[int], context: list[int]) -> tuple[InputSequence, int]:
        """A sequence of a question and a part of its context, and the index of the first context token."""
        before, between, after = self._pair_frame
        ids = [*before, *question, *between, *context, *after]
        first = len(before) + len(question) + len(between)
        return InputSequence(ids, [0] * first + [self._second_segment] * (len(ids) - first), None), first

    def _causal(self, texts: Sequence[tuple[str, str | None]], *, keep_second: bool) -> list[InputSequence]:
        firsts = self.tokens([a for a, _ in texts])
        seconds = iter(self.tokens([b for _, b in texts if b is not None]))
        sequences = []
        for (_, text), first in zip(texts, firsts, strict=True):
            second = None if text is None else next(seconds).ids
            room = self.max_length - (2 if second is None else 3)
            length, pair_length = longest_first(len(first), len(second or ()), room)
            if keep_second and len(first) + len(second or ()) > room:
                length, pair_length = only_first(len(second or ()), room)
            ids = [self._begin, *first.ids[:length], self._end]
            if second is not None:
                ids += [*second[:pair_length], self._end]
            truncated = len(first) - length + len(second or ()) - pair_length
            sequences.append(InputSequence(ids, [0] * len(ids), [len(ids) - 1], truncated))
        return sequences

    @property
    def _begin(self) -> int:
        if self.causal:
            return self._end if self.tokenizer.bos_token_id is None else self.tokenizer.bos_token_id
        return _required(self.tokenizer.cls_token_id, "[CLS]")

    @property
    def _end(self) -> int:
        """The token after each text."""
        if self.causal:
            return _required(self.tokenizer.eos_token_id, "end-of-text")
        return _required(self.tokenizer.sep_token_id, "[SEP]")

    @cached_property
    def _frame(self) -> Frame:
        """The special tokens of a text."""
        if self.published is None:
            return Frame([self._begin], [], [] if self.causal else [self._end])
        return Frame.of(self.tokenizer.encode("a"))

    @cached_property
    def _pair_frame(self) -> Frame:
        """The special tokens of a question and its context."""
        if self.published is None and self.causal:
            return Frame([self._begin], [self._end], [])
        if self.published is None:
            _ = self._begin, self._end  # there are such tokens
        return Frame.of(self.tokenizer.encode("a", "a"))

    @cached_property
    def _second_segment(self) -> int:
        """The segment of the second text of a pair."""
        if self.causal or (self.published is not None and not self.tokenizer.has_segments):
            return 0
        return self.tokenizer.encode("", "").segments[-1]


def _required(token_id: int | None, name: str) -> int:
    if token_id is None:
        raise InputError(f"this model's tokenizer has no {name} token, which a task needs; use another model")
    return token_id


def split_windows(count: int, size: int, overlap: int) -> list[tuple[int, int]]:
    """[start, end) of windows of `size` over `count` tokens, each sharing `overlap` tokens with the previous one."""
    step = max(size - overlap, 1)
    starts = range(0, max(count - overlap, 1), step)
    return [(start, min(start + size, count)) for start in starts]


def max_context_windows(count: int, spans: Sequence[tuple[int, int]]) -> list[int]:
    """For each token, the window with the most context on the shorter side (the first one if several are equal)."""
    if len(spans) == 1:
        return [0] * count
    windows, best = [0] * count, [-1] * count
    for window, (start, end) in enumerate(spans):
        for token in range(start, end):
            context = min(token - start, end - 1 - token)
            if context > best[token]:
                windows[token], best[token] = window, context
    return windows
