"""Trains tokenizers: WordPiece as in BERT, or byte-level BPE as in GPT-2.

Memory grows with the number of distinct words, not with the length of the text.

Training is deterministic: the same texts give the same tokenizer, byte for byte. The `tokenizers` library alone does
not guarantee this for WordPiece: it numbers the characters inside words in hash table order and breaks ties between
merges by these numbers. Here characters are counted first and numbered by code point, so WordPiece reads the texts
twice.
"""

from __future__ import annotations

import json
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import IO, Literal, get_args

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from regard.errors import InputError, suggest
from regard.text import Tokenizer

TokenizerType = Literal["wordpiece", "bpe"]

SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
END = "<|endoftext|>"
INSIDE = "##"  # prefix of tokens that continue a word
ALPHABET = 1000
Texts = Callable[[], Iterator[str]]


class SizeError(InputError):
    """The text does not support the requested vocabulary size; `size` is the nearest possible one."""

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size = size


def train_tokenizer(
    texts: Iterable[str],
    *,
    kind: TokenizerType = "wordpiece",
    size: int,
    exact: bool = True,
    lowercase: bool | None = None,
    minimum: int = 2,
    alphabet: int = ALPHABET,
    max_length: int | None = None,
) -> Tokenizer:
    """Train a tokenizer with `size` entries, including special tokens, that occur at least `minimum` times.

    WordPiece: [PAD] [UNK] [CLS] [SEP] [MASK] have the ids 0 to 4, text is lowercased and accents are removed unless
    `lowercase` is False, and the `alphabet` most frequent characters are in the vocabulary. BPE: <|endoftext|> has the
    id 0, every text can be encoded, and text is not normalized unless `lowercase` is True. An iterator, which can be
    read only once, is copied to a temporary file. Raises SizeError if the text has too few pieces, unless `exact` is
    False, or too many distinct characters for `size`.
    """
    if kind not in get_args(TokenizerType):
        raise InputError(f"unknown tokenizer type {kind!r}; {suggest(str(kind), get_args(TokenizerType))}")
    if isinstance(texts, str):
        raise InputError("expected an iterable of texts, got one str; put it in a list")
    if size < 1 or minimum < 1 or alphabet < 1:
        raise InputError(f"size, minimum and alphabet must be at least 1, got {size}, {minimum} and {alphabet}")
    if kind == "bpe":
        tokenizer = _bpe(_checked(texts), size, lowercase=lowercase is True, minimum=minimum, max_length=max_length)
    else:
        with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
            rereadable = _rereadable(texts, spool)
            pipeline = _wordpiece(
                rereadable, size, lowercase=lowercase is not False, minimum=minimum, alphabet=alphabet
            )
        inputs = ("input_ids", "token_type_ids", "attention_mask")
        tokenizer = Tokenizer(pipeline, special_tokens=SPECIAL, max_length=max_length, model_input_names=inputs)
    if exact and len(tokenizer.vocabulary) < size:
        raise SizeError(
            f"a vocabulary of {size:,} entries was requested, but this text supports {len(tokenizer.vocabulary):,} "
            f"(pieces that occur at least {minimum} times); request at most that many, or give more text",
            len(tokenizer.vocabulary),
        )
    return tokenizer


def _wordpiece(texts: Texts, size: int, *, lowercase: bool, minimum: int, alphabet: int) -> tokenizers.Tokenizer:
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    letters, inside = _letters(texts(), normalizer, alphabet)
    if not letters:
        raise InputError("there is no text to train a tokenizer on: the corpus is empty")
    # As "special" tokens, the characters get fixed ids; the trained vocabulary is then moved to a pipeline in which
    # they are ordinary tokens.
    first = [*SPECIAL.values(), *letters, *(INSIDE + letter for letter in inside)]
    if len(first) > size:
        raise SizeError(
            f"a vocabulary of {size:,} entries was requested, but the special tokens and the characters of this text "
            f"alone are {len(first):,}; request more, or a smaller alphabet than {alphabet:,}",
            len(first),
        )
    trained = tokenizers.Tokenizer(models.WordPiece(unk_token=SPECIAL["unk_token"]))
    trained.normalizer = normalizer
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=minimum,
        special_tokens=first,
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        continuing_subword_prefix=INSIDE,
        show_progress=False,
    )
    trained.train_from_iterator(texts(), trainer)
    vocabulary = trained.get_vocab(with_added_tokens=True)
    pipeline = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=SPECIAL["unk_token"]))
    pipeline.normalizer = normalizer
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix=INSIDE)
    pipeline.add_special_tokens(list(SPECIAL.values()))
    cls, sep = SPECIAL["cls_token"], SPECIAL["sep_token"]
    pipeline.post_processor = processors.TemplateProcessing(
        single=[cls, "$A", sep],
        pair=[cls, "$A", sep, "$B:1", f"{sep}:1"],
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
    return pipeline


def _bpe(texts: Iterator[str], size: int, *, lowercase: bool, minimum: int, max_length: int | None) -> Tokenizer:
    letters = pre_tokenizers.ByteLevel.alphabet()
    if size < len(letters) + 1:
        least = len(letters) + 1
        raise SizeError(f"a byte-level vocabulary has at least {least} entries, but {size} were requested", least)
    pipeline = tokenizers.Tokenizer(models.BPE())
    if lowercase:
        pipeline.normalizer = normalizers.Lowercase()
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    pipeline.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=minimum,
        special_tokens=[END],
        initial_alphabet=letters,
        show_progress=False,
    )
    pipeline.train_from_iterator(texts, trainer)
    return Tokenizer(
        pipeline, special_tokens=dict.fromkeys(("unk_token", "bos_token", "eos_token"), END), max_length=max_length
    )


def _letters(texts: Iterator[str], normalizer: normalizers.BertNormalizer, limit: int) -> tuple[list[str], list[str]]:
    """Return the `limit` most frequent characters of the normalized texts, and those that occur inside words, sorted.

    Words end at whitespace and punctuation, as in the library's BertPreTokenizer.
    """
    counts: Counter[str] = Counter()
    pairs: set[tuple[str, str]] = set()
    for text in texts:
        if text.isascii() and text.isprintable():  # same result, ten times faster
            normalized = text.lower() if normalizer.lowercase else text
        else:
            normalized = normalizer.normalize_str(text)
        counts.update(normalized)
        pairs.update(pairwise(normalized))
    letters = [letter for letter in counts if not letter.isspace()]
    letters.sort(key=lambda letter: (-counts[letter], letter))
    alphabet = set(letters[:limit])
    inside = {after for before, after in pairs if after in alphabet and _in_word(before) and _in_word(after)}
    return sorted(alphabet), sorted(inside)


def _in_word(letter: str) -> bool:
    ascii_punctuation = letter.isascii() and letter.isprintable() and not letter.isalnum()  # includes "$", as in BERT
    return not (letter.isspace() or ascii_punctuation or unicodedata.category(letter).startswith("P"))


def _rereadable(texts: Iterable[str], spool: IO[str]) -> Texts:
    """Return a function that iterates over the texts any number of times."""
    if iter(texts) is not texts:
        return lambda: _checked(texts)
    for text in _checked(texts):
        spool.write(json.dumps(text) + "\n")

    def read() -> Iterator[str]:
        spool.seek(0)
        return map(json.loads, spool)

    return read


def _checked(texts: Iterable[str]) -> Iterator[str]:
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"expected texts, got {type(text).__name__} at position {index}")
        yield text
