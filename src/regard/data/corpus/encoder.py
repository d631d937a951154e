"""Documents to the ids of their sentences.

The `tokenizers` library encodes sentences on all cores. Where there are only one or two, WordPiece is cheaper by
words: most were there before, so their ids are kept and the library sees only new ones. The ids are the same, for in
BERT's pipeline nothing crosses a space or a mark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from itertools import chain

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from regard.data.corpus.documents import Document
from regard.data.corpus.sentences import split_sentences
from regard.text import Tokenizer

__all__ = ["CorpusEncoder", "text_bytes"]

PROBE = "a b\nc"
FEW = 2  # cores
WORDS = 1 << 19  # ids of so many words are kept: some 150 MB

_BETWEEN_MARKS: Callable[[str], list[str]] = re.compile(r"[^ !-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]").findall


class CorpusEncoder:
    """`sentences` cuts a document, `encode` turns the sentences of many documents into ids, without special tokens.

    `spaces`: whether the tokenizer keeps them, as a byte-level one does. Then a sentence has before it the space or the
    line end that stood there, and the ids of a document are those of its whole text. Otherwise a sentence is encoded
    on its own.
    """

    def __init__(self, tokenizer: Tokenizer, *, cores: int | None = None) -> None:
        self.unknown = tokenizer.unknown
        self.spaces = tokenizer.decode(tokenizer.encode(PROBE, special=False).ids) == PROBE
        # A copy of our own: in it text that spells a special token ("[MASK]") is only text.
        self._pipeline = tokenizers.Tokenizer.from_str(tokenizer.files()["tokenizer.json"].decode())
        self._pipeline.encode_special_tokens = True
        self._by_words = (cores or os.cpu_count() or 1) <= FEW and _is_bert(self._pipeline)
        self._words: dict[str, list[int]] = {}

    def sentences(self, document: Document) -> list[str]:
        """The sentences of a document, with the space before them where the tokenizer keeps it."""
        found = []
        for number, paragraph in enumerate(document.paragraphs):
            end = 0
            for start, stop in split_sentences(paragraph):
                if not self.spaces:
                    found.append(paragraph[start:stop])
                else:
                    found.append(("\n" if number and not start else "") + paragraph[end:stop])
                end = stop
        return found

    def encode(self, documents: Sequence[list[str]]) -> list[list[list[int]]]:
        """Ids for each sentence of each document."""
        if not self._by_words:
            ids = iter(self._ids([sentence for document in documents for sentence in document]))
            return [[next(ids) for _ in document] for document in documents]
        cut = [[_BETWEEN_MARKS(sentence) for sentence in document] for document in documents]
        if len(self._words) > WORDS:
            self._words.clear()
        words = set(chain.from_iterable(chain.from_iterable(cut)))
        new = sorted(words.difference(self._words))
        self._words.update(zip(new, self._ids(new), strict=True))
        known = self._words.__getitem__
        return [[list(chain.from_iterable(map(known, parts))) for parts in document] for document in cut]

    def _ids(self, texts: list[str]) -> list[list[int]]:
        """By the library, on all cores."""
        return [found.ids for found in self._pipeline.encode_batch_fast(texts, add_special_tokens=False)]


def text_bytes(document: Document) -> int:
    """The bytes of a document's paragraphs in UTF-8."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in document.paragraphs)


def _is_bert(pipeline: tokenizers.Tokenizer) -> bool:
    """Whether the parts between ASCII's spaces and marks have, one after the other, the ids of the whole text."""
    return (
        isinstance(pipeline.model, models.WordPiece)
        and isinstance(pipeline.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        and isinstance(pipeline.normalizer, normalizers.BertNormalizer)
        # An added token that is not special may hold a space.
        and all(token.special for token in pipeline.get_added_tokens_decoder().values())
    )
