"""Text to a new tokenizer: WordPiece as BERT has it, or byte-level BPE as GPT-2 has it.

Memory grows with the number of different words, not with the length of the text.

The same texts give the same tokenizer, byte for byte. The library alone does not see to that for WordPiece: it numbers
the letters inside words in the order of a hash table, and ties between merges are broken by those numbers. Here letters
are counted first and numbered by their code points, so WordPiece goes through the texts twice.
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

__all__ = ["SizeError", "TokenizerType", "train_tokenizer"]

TokenizerType = Literal["wordpiece", "bpe"]

SPECIAL = {"pad": "[PAD]", "unknown": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
END = "<|endoftext|>"
INSIDE = "##"  # opens the tokens that continue a word
ALPHABET = 1000
Texts = Callable[[], Iterator[str]]


class SizeError(InputError):
    """A vocabulary of the size that was asked for cannot be had of the text; `size` is the nearest that can."""

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size = size


def train_tokenizer(
    texts: Iterable[str],
    *,
    kind: TokenizerType = "wordpiece",
    size: int,
    lowercase: bool | None = None,
    minimum: int = 2,
    alphabet: int = ALPHABET,
    max_length: int | None = None,
) -> Tokenizer:
    """A tokenizer of exactly `size` entries, special tokens included, with pieces that occur at least `minimum` times.

    WordPiece: [PAD] [UNK] [CLS] [SEP] [MASK] are 0 to 4, text is put in small letters and loses its accents unless
    `lowercase` is False, and the `alphabet` most frequent characters are known. BPE: <|endoftext|> is 0, every text can
    be written, and nothing is changed unless `lowercase` is True. An iterator, which can be read only once, is copied
    to a temporary file. SizeError where the text has not enough pieces for `size`, or too many letters.
    """
    if kind not in get_args(TokenizerType):
        raise InputError(f"unknown kind of tokenizer {kind!r}; {suggest(str(kind), get_args(TokenizerType))}")
    if isinstance(texts, str):
        raise InputError("expected texts one by one, got one str; put it in a list")
    if size < 1 or minimum < 1 or alphabet < 1:
        raise InputError(f"size, minimum and alphabet are numbers from 1, got {size}, {minimum} and {alphabet}")
    if kind == "bpe":
        tokenizer = _bpe(_checked(texts), size, lowercase=lowercase is True, minimum=minimum, max_length=max_length)
    else:
        with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
            again = _again(texts, spool)
            pipeline = _wordpiece(again, size, lowercase=lowercase is not False, minimum=minimum, alphabet=alphabet)
        inputs = ("input_ids", "token_type_ids", "attention_mask")
        tokenizer = Tokenizer(pipeline, names=SPECIAL, max_length=max_length, inputs=inputs)
    if len(tokenizer.vocabulary) < size:
        raise SizeError(
            f"a vocabulary of {size:,} entries was asked for, and this text supports {len(tokenizer.vocabulary):,} "
            f"(pieces that occur at least {minimum} times); ask for that many or fewer, or give more text",
            len(tokenizer.vocabulary),
        )
    return tokenizer


def _wordpiece(texts: Texts, size: int, *, lowercase: bool, minimum: int, alphabet: int) -> tokenizers.Tokenizer:
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    letters, inside = _letters(texts(), normalizer, alphabet)
    if not letters:
        raise InputError("there is no text to train a tokenizer on: the corpus is empty")
    # As "special" tokens the letters get their numbers before the library begins; the trained vocabulary then moves to
    # a pipeline in which they are tokens like others.
    first = [*SPECIAL.values(), *letters, *(INSIDE + letter for letter in inside)]
    if len(first) > size:
        raise SizeError(
            f"a vocabulary of {size:,} entries was asked for, and the special tokens and the letters of this text "
            f"alone are {len(first):,}; ask for more, or for a smaller alphabet than {alphabet:,}",
            len(first),
        )
    trained = tokenizers.Tokenizer(models.WordPiece(unk_token=SPECIAL["unknown"]))
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
    pipeline = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=SPECIAL["unknown"]))
    pipeline.normalizer = normalizer
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix=INSIDE)
    pipeline.add_special_tokens(list(SPECIAL.values()))
    cls, sep = SPECIAL["cls"], SPECIAL["sep"]
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
        raise SizeError(f"a byte-level vocabulary has at least {least} entries, and {size} were asked for", least)
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
    return Tokenizer(pipeline, names=dict.fromkeys(("unknown", "bos", "eos"), END), max_length=max_length)


def _letters(texts: Iterator[str], normalizer: normalizers.BertNormalizer, most: int) -> tuple[list[str], list[str]]:
    """The `most` frequent characters of the normalised texts, and those of them that stand inside words, both sorted.

    A word ends at space and at punctuation, as the library's BertPreTokenizer ends it.
    """
    counts: Counter[str] = Counter()
    pairs: set[tuple[str, str]] = set()
    for text in texts:
        if text.isascii() and text.isprintable():  # the same in a tenth of the time
            normal = text.lower() if normalizer.lowercase else text
        else:
            normal = normalizer.normalize_str(text)
        counts.update(normal)
        pairs.update(pairwise(normal))
    letters = [letter for letter in counts if not letter.isspace()]
    letters.sort(key=lambda letter: (-counts[letter], letter))
    kept = set(letters[:most])
    inside = {after for before, after in pairs if after in kept and _in_word(before) and _in_word(after)}
    return sorted(kept), sorted(inside)


def _in_word(letter: str) -> bool:
    ascii_mark = letter.isascii() and letter.isprintable() and not letter.isalnum()  # "$" and "+" too, as in BERT
    return not (letter.isspace() or ascii_mark or unicodedata.category(letter).startswith("P"))


def _again(texts: Iterable[str], spool: IO[str]) -> Texts:
    """How to read the texts twice."""
    if iter(texts) is not texts:
        return lambda: _checked(texts)
    for text in _checked(texts):
        spool.write(json.dumps(text) + "\n")

    def read() -> Iterator[str]:
        spool.seek(0)
        return map(json.loads, spool)

    return read


def _checked(texts: Iterable[str]) -> Iterator[str]:
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"expected texts, got {type(text).__name__} at position {place}")
        yield text
