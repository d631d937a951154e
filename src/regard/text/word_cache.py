"""Token ids of whole words, remembered: texts become arrays without an object per token.

BERT's tokenizers treat what stands between two spaces independently of the rest of the text. So a text is split at its
spaces, words that were seen before are looked up, and only new words go through the `tokenizers` library. The ids are
exactly those of the library; `WordCache.of` returns None for tokenizers of other kinds.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import chain

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import models, normalizers, pre_tokenizers

Ids = NDArray[np.int32]
Sizes = NDArray[np.int64]
MAX_CHARACTERS = 1 << 22  # of all words; the cache starts anew beyond it
PROBE = "a b"


class WordCache:
    """Converts texts to ids. `prefix` and `suffix` are the special tokens around a text. Threads may share it."""

    def __init__(self, pipeline: tokenizers.Tokenizer, prefix: Ids, suffix: Ids) -> None:
        self.prefix, self.suffix = prefix, suffix
        self._pipeline = pipeline
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}  # of the words
        self._starts: Sizes = np.zeros(1, dtype=np.int64)  # where the ids of each word start
        self._ids: Ids = np.empty(0, dtype=np.int32)
        self._characters = 0

    @staticmethod
    def of(pipeline: tokenizers.Tokenizer) -> WordCache | None:
        """The cache of a tokenizer; None if its words are not independent of each other."""
        if not isinstance(pipeline.model, models.WordPiece):
            return None
        if not isinstance(pipeline.pre_tokenizer, pre_tokenizers.BertPreTokenizer):
            return None
        if not isinstance(pipeline.normalizer, normalizers.BertNormalizer | None):
            return None
        if any(" " in token.content for token in pipeline.get_added_tokens_decoder().values()):
            return None
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
        counts = np.fromiter((text.count(" ") + 1 for text in texts), dtype=np.int64, count=len(texts))
        ids, sizes = self._look_up(" ".join(texts).split(" "))
        lengths = np.add.reduceat(sizes, np.cumsum(counts) - counts)
        kept = lengths
        if max_length is not None:
            kept = np.minimum(lengths, max_length - len(self.prefix) - len(self.suffix))
            if not np.array_equal(kept, lengths):
                ids = ids[_within(lengths) < np.repeat(kept, lengths)]
        return self._add_special_tokens(ids, kept), kept + len(self.prefix) + len(self.suffix), lengths - kept

    def _look_up(self, words: list[str]) -> tuple[Ids, Sizes]:
        """The ids of the words, one after the other, and the number of ids of each."""
        with self._lock:
            if self._characters > MAX_CHARACTERS:
                self._clear()
            try:
                entries = self._entries(words)
            except KeyError:
                self._add([word for word in words if word not in self._numbers])
                entries = self._entries(words)
            ids, starts = self._ids, self._starts
        first = starts[entries]
        sizes = starts[entries + 1] - first
        return ids[_within(sizes) + np.repeat(first, sizes)], sizes

    def _entries(self, words: list[str]) -> Sizes:
        return np.fromiter(map(self._numbers.__getitem__, words), dtype=np.int64, count=len(words))

    def _add(self, words: list[str]) -> None:
        new = list(dict.fromkeys(words))
        rows = [item.ids for item in self._pipeline.encode_batch_fast(new, add_special_tokens=False)]
        sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(sizes.sum()))
        self._starts = np.concatenate([self._starts, len(self._ids) + np.cumsum(sizes)])
        self._ids = np.concatenate([self._ids, ids])
        for word in new:
            self._numbers[word] = len(self._numbers)
        self._characters += sum(map(len, new))

    def _add_special_tokens(self, ids: Ids, lengths: Sizes) -> Ids:
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

    def _clear(self) -> None:
        self._numbers, self._characters = {}, 0
        self._starts, self._ids = self._starts[:1].copy(), self._ids[:0].copy()


def _within(lengths: Sizes) -> Sizes:
    """0, 1, ... for each length, one after the other."""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
