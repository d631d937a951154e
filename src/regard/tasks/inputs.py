"""Builds token sequences with the special tokens of a model family, and splits long texts into windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from regard.errors import InputError
from regard.models.family import get_family
from regard.text import Encoding, Tokenizer
from regard.text.tokenizer import longest_first

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
    """What the inputs of a published model depend on beside its tokenizer: the padding token of its config.json."""

    pad_token_id: int | None = None


class InputBuilder:
    """Builds sequences of at most `max_length` tokens; with `vectors`, a sequence for each text of a pair.

    BERT reads [CLS] A [SEP] B [SEP], RoBERTa has one more [SEP] before B; they predict from the first token. A causal
    model attends only to previous tokens: it reads BOS A EOS B EOS and predicts from the last token.

    With `published`, the inputs are those of transformers: the special tokens are those that the tokenizer adds, and a
    causal model predicts from the last token that is not padding.
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
        self._num_separators = get_family(family).num_separators
        if self.causal and published is None:
            _required(tokenizer.eos_token_id, "end-of-text")
        if max_length < MIN_LENGTH:
            raise InputError(f"sequences of {max_length} tokens are too short for a task; use {MIN_LENGTH} or more")

    def sequences(self, texts: Sequence[tuple[str, str | None]]) -> list[InputSequence]:
        """One sequence per text or pair, truncated if it is too long, that predicts from one position."""
        if self.causal and self.published is None:
            return self._causal(texts)
        inputs: list[str | tuple[str, str]] = [a if b is None else (a, b) for a, b in texts]
        rows = self.tokenizer.ids_and_segments(inputs, max_length=self.max_length)
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
        pad = self.published.pad_token_id
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
        return self.max_length - (1 if self.causal else 2)

    def context_length_with_question(self, question: int) -> int:
        """Tokens of a context per sequence, next to a question of `question` tokens."""
        return self.max_length - question - (2 if self.causal else 2 + self._num_separators)

    def window(self, ids: list[int], positions: list[int]) -> InputSequence:
        """A sequence of some tokens of a text; `positions` are indices into `ids`."""
        ids = [self._begin, *ids, *([] if self.causal else [self._end])]
        return InputSequence(ids, [0] * len(ids), [position + 1 for position in positions])

    def question(self, question: list[int], context: list[int]) -> tuple[InputSequence, int]:
        """A sequence of a question and a part of its context, and the index of the first context token."""
        if self.causal:
            ids = [self._begin, *question, self._end, *context]
            return InputSequence(ids, [0] * len(ids), None), len(question) + 2
        ids = [self._begin, *question, *[self._end] * self._num_separators, *context, self._end]
        first = 1 + len(question) + self._num_separators
        return InputSequence(ids, [0] * first + [self._second_segment] * (len(ids) - first), None), first

    def _causal(self, texts: Sequence[tuple[str, str | None]]) -> list[InputSequence]:
        firsts = self.tokens([a for a, _ in texts])
        seconds = iter(self.tokens([b for _, b in texts if b is not None]))
        sequences = []
        for (_, text), first in zip(texts, firsts, strict=True):
            second = None if text is None else next(seconds).ids
            room = self.max_length - (2 if second is None else 3)
            length, pair_length = longest_first(len(first), len(second or ()), room)
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
    def _second_segment(self) -> int:
        """The segment of the second text of a pair."""
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
