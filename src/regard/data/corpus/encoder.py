"""Splits documents into sentences and encodes them as token ids."""

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

PROBE = "a b\nc"
MAX_CORES = 2  # encode by word up to this many cores
MAX_WORDS = 1 << 19  # cached words, about 150 MB
_split_words: Callable[[str], list[str]] = re.compile(r"[^ !-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]").findall


class CorpusEncoder:
    """Splits documents into sentences and encodes the sentences of many documents, without special tokens.

    The `tokenizers` library encodes sentences on all cores. With one or two cores, it is faster to encode WordPiece by
    word and to cache the ids of each word; the ids are the same, because in BERT's pipeline no token crosses a space
    or a punctuation mark. `spaces` is True if the tokenizer preserves whitespace, as byte-level tokenizers do. Then a
    sentence includes the space or line break before it, and the ids of a document are those of its complete text.
    """

    def __init__(self, tokenizer: Tokenizer, *, cores: int | None = None) -> None:
        self.unknown, self.vocabulary = tokenizer.unk_token_id, tokenizer.size
        self.spaces = tokenizer.decode(tokenizer.encode(PROBE, add_special_tokens=False).ids) == PROBE
        # In this copy, text that looks like a special token ("[MASK]") is encoded as text.
        self._pipeline = tokenizers.Tokenizer.from_str(tokenizer.files()["tokenizer.json"].decode())
        self._pipeline.encode_special_tokens = True
        self._by_words = (cores or os.cpu_count() or 1) <= MAX_CORES and _is_bert(self._pipeline)
        self._words: dict[str, list[int]] = {}

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

    def encode(self, documents: Sequence[list[str]]) -> list[list[list[int]]]:
        """Return the ids of each sentence of each document."""
        if not self._by_words:
            ids = iter(self._ids([sentence for document in documents for sentence in document]))
            return [[next(ids) for _ in document] for document in documents]
        split = [[_split_words(sentence) for sentence in document] for document in documents]
        if len(self._words) > MAX_WORDS:
            self._words.clear()
        words = set(chain.from_iterable(chain.from_iterable(split)))
        new = sorted(words.difference(self._words))
        self._words.update(zip(new, self._ids(new), strict=True))
        known = self._words.__getitem__
        return [[list(chain.from_iterable(map(known, parts))) for parts in document] for document in split]

    def _ids(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._pipeline.encode_batch_fast(texts, add_special_tokens=False)]


def text_bytes(document: Document) -> int:
    """Return the number of UTF-8 bytes in the paragraphs of a document."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in document.paragraphs)


def _is_bert(pipeline: tokenizers.Tokenizer) -> bool:
    """Return whether a text can be encoded by the parts between ASCII spaces and punctuation marks."""
    return (
        isinstance(pipeline.model, models.WordPiece)
        and isinstance(pipeline.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        and isinstance(pipeline.normalizer, normalizers.BertNormalizer)
        # Added tokens that are not special may contain spaces.
        and all(token.special for token in pipeline.get_added_tokens_decoder().values())
    )
