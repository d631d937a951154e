"""Splits documents into sentences and encodes them as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import tokenizers

from regard.data.corpus.documents import Document
from regard.data.corpus.sentences import split_sentences
from regard.text import Tokenizer
from regard.text.word_cache import Ids, Sizes, WordCache

PROBE = "a b\nc"


class CorpusEncoder:
    """Splits documents into sentences and encodes the sentences of many documents, without special tokens.

    `spaces` is True if the tokenizer preserves whitespace, as byte-level tokenizers do. Then a sentence includes the
    space or line break before it, and the ids of a document are those of its complete text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.unknown, self.vocabulary = tokenizer.unk_token_id, tokenizer.size
        self.spaces = tokenizer.decode(tokenizer.encode(PROBE, add_special_tokens=False).ids) == PROBE
        # In this copy, text that looks like a special token ("[MASK]") is encoded as text.
        self._pipeline = tokenizers.Tokenizer.from_str(tokenizer.files()["tokenizer.json"].decode())
        self._pipeline.encode_special_tokens = True
        self._cache = WordCache.of(self._pipeline, add_special_tokens=False)

    def sentences(self, document: Document) -> list[str]:
        """Return the sentences of a document, with the whitespace before them if the tokenizer preserves it."""
        sentences = []
        for number, paragraph in enumerate(document.paragraphs):
            end = 0
            for start, stop in split_sentences(paragraph):
                if not self.spaces:
                    sentences.append(paragraph[start:stop])
                else:
                    sentences.append(("\n" if number and not start else "") + paragraph[end:stop])
                end = stop
        return sentences

    def encode(self, sentences: Sequence[str]) -> tuple[Ids, Sizes]:
        """Return the ids of all sentences, one after the other, and the number of ids of each sentence."""
        if self._cache is not None:
            ids, sizes, _ = self._cache.encode(sentences)
            return ids, sizes
        rows = [item.ids for item in self._pipeline.encode_batch_fast(list(sentences), add_special_tokens=False)]
        sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        return np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(sizes.sum())), sizes


def text_bytes(document: Document) -> int:
    """Return the number of UTF-8 bytes in the paragraphs of a document."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in document.paragraphs)
