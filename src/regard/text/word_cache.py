"""Token ids of whole words, remembered: texts become arrays without an object per token.

BERT's tokenizers treat what stands between two spaces independently of the rest of the text. So a text is split at its
spaces, and words that were seen before are looked up. New words are split at ASCII punctuation marks, which are always
tokens of their own, and only parts that are new as well go through the `tokenizers` library. The ids are exactly those
of the library; `WordCache.of` returns None for tokenizers of other kinds.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import models, normalizers, pre_tokenizers

Ids = NDArray[np.int32]
Sizes = NDArray[np.int64]
MAX_CHARACTERS = 1 << 22  # of all words; the cache starts anew beyond it
PROBE = "a b"
_split_word: Callable[[str], list[str]] = re.compile(r"[^!-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]").findall


class WordCache:
    """Converts texts to ids. `prefix` and `suffix` are the special tokens around a text. Threads may share it."""

    def __init__(self, pipeline: tokenizers.Tokenizer, prefix: Ids, suffix: Ids) -> None:
        self.prefix, self.suffix = prefix, suffix
        self._pipeline = pipeline
        # A word with an added token ("[MASK]") is not split. Where added tokens are found after the text is normalized,
        # any word may have one.
        added = pipeline.get_added_tokens_decoder().values()
        pattern = "|".join(re.escape(token.content) for token in added) or "(?!)"
        self._is_whole = re.compile("" if any(token.normalized for token in added) else pattern).search
        self._lock = threading.Lock()
        self._parts = _IdTable(self._encode_parts)
        self._words = _IdTable(self._encode_words)

    @staticmethod
    def of(pipeline: tokenizers.Tokenizer, *, add_special_tokens: bool = True) -> WordCache | None:
        """The cache of a tokenizer; None if its words are not independent of each other."""
        if not isinstance(pipeline.model, models.WordPiece):
            return None
        if not isinstance(pipeline.pre_tokenizer, pre_tokenizers.BertPreTokenizer):
            return None
        if not isinstance(pipeline.normalizer, normalizers.BertNormalizer | None):
            return None
        if any(" " in token.content for token in pipeline.get_added_tokens_decoder().values()):
            return None
        if not add_special_tokens:
            return WordCache(pipeline, np.empty(0, np.int32), np.empty(0, np.int32))
        full, body = pipeline.encode(PROBE), pipeline.encode(PROBE, add_special_tokens=False).ids
        first = full.special_tokens_mask.index(0) if 0 in full.special_tokens_mask else 0
        prefix, suffix = full.ids[:first], full.ids[first + len(body) :]
        if full.ids != [*prefix, *body, *suffix] or pipeline.encode("").ids != [*prefix, *suffix]:
            return None
        return WordCache(pipeline, np.array(prefix, dtype=np.int32), np.array(suffix, dtype=np.int32))

    def __reduce__(self) -> tuple[object, ...]:
        """A copy, also in another process, starts empty: a lock cannot be copied."""
        return WordCache, (self._pipeline, self.prefix, self.suffix)

    def encode(self, texts: Sequence[str], max_length: int | None = None) -> tuple[Ids, Sizes, Sizes]:
        """The ids of all texts with special tokens, the number of ids of each text, and how many were truncated.

        `max_length` includes the special tokens and must have room for them.
        """
        if not texts:
            return np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64)
        with self._lock:
            found = self._words.look_up(" ".join(texts).split(" "))
        ids, sizes = found.gather()
        if len(texts) == 1:
            lengths = np.array([len(ids)])
        else:
            counts = np.fromiter((text.count(" ") + 1 for text in texts), dtype=np.int64, count=len(texts))
            lengths = np.add.reduceat(sizes, np.cumsum(counts) - counts)
        kept = lengths
        if max_length is not None:
            kept = np.minimum(lengths, max_length - len(self.prefix) - len(self.suffix))
            if (kept < lengths).any():
                ids = ids[_within(lengths) < np.repeat(kept, lengths)]
        return self._add_special_tokens(ids, kept), kept + len(self.prefix) + len(self.suffix), lengths - kept

    def _encode_words(self, words: list[str]) -> tuple[Ids, Sizes]:
        parts = [[word] if self._is_whole(word) else _split_word(word) or [word] for word in words]
        counts = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
        ids, sizes = self._parts.look_up(list(chain.from_iterable(parts))).gather()
        return ids, np.add.reduceat(sizes, np.cumsum(counts) - counts)

    def _encode_parts(self, parts: list[str]) -> tuple[Ids, Sizes]:
        return flatten([item.ids for item in self._pipeline.encode_batch_fast(parts, add_special_tokens=False)])

    def _add_special_tokens(self, ids: Ids, lengths: Sizes) -> Ids:
        if len(lengths) == 1:
            return np.concatenate([self.prefix, ids, self.suffix])
        before, after = len(self.prefix), len(self.suffix)
        whole = lengths + before + after
        starts = np.cumsum(whole) - whole
        result = np.empty(int(whole.sum()), dtype=np.int32)
        result[_within(lengths) + np.repeat(starts + before, lengths)] = ids
        for position, token in enumerate(self.prefix):
            result[starts + position] = token
        for position, token in enumerate(self.suffix):
            result[starts + before + lengths + position] = token
        return result


@dataclass(frozen=True)
class _Entries:
    """Entries of a table, whose arrays do not change: the numbers of the entries, where each starts, and all ids."""

    numbers: Sizes
    starts: Sizes
    ids: Ids

    def gather(self) -> tuple[Ids, Sizes]:
        """The ids of the entries, one after the other, and the number of ids of each."""
        first = self.starts[self.numbers]
        sizes = self.starts[self.numbers + 1] - first
        if (sizes == 1).all():
            return self.ids[first], sizes
        return self.ids[_within(sizes) + np.repeat(first, sizes)], sizes


class _IdTable:
    """The ids of strings; `encode` computes those of strings that are not in the table yet."""

    def __init__(self, encode: Callable[[list[str]], tuple[Ids, Sizes]]) -> None:
        self._encode = encode
        self._numbers: dict[str, int] = {}
        self._starts: Sizes = np.zeros(1, dtype=np.int64)  # where the ids of each string start
        self._ids: Ids = np.empty(0, dtype=np.int32)
        self._characters = 0

    def look_up(self, strings: list[str]) -> _Entries:
        """The entries of the strings."""
        if self._characters > MAX_CHARACTERS:
            self._numbers, self._characters = {}, 0
            self._starts, self._ids = self._starts[:1].copy(), self._ids[:0].copy()
        try:
            numbers = self._find(strings)
        except KeyError:
            self._add([string for string in strings if string not in self._numbers])
            numbers = self._find(strings)
        return _Entries(numbers, self._starts, self._ids)

    def _find(self, strings: list[str]) -> Sizes:
        return np.fromiter(map(self._numbers.__getitem__, strings), dtype=np.int64, count=len(strings))

    def _add(self, strings: list[str]) -> None:
        new = list(dict.fromkeys(strings))
        ids, sizes = self._encode(new)
        self._starts = np.concatenate([self._starts, len(self._ids) + np.cumsum(sizes)])
        self._ids = np.concatenate([self._ids, ids])
        for string in new:
            self._numbers[string] = len(self._numbers)
        self._characters += sum(map(len, new))


def flatten(rows: Sequence[Sequence[int]]) -> tuple[Ids, Sizes]:
    """The ids of all rows, one after the other, and the number of ids of each."""
    sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    return np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(sizes.sum())), sizes


def _within(lengths: Sizes) -> Sizes:
    """0, 1, ... for each length, one after the other."""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
