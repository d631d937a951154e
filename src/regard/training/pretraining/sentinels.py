"""Sentinels: tokens that stand for stretches of text that were dropped, as T5 has them.

Knows a tokenizer and their names. Knows no tensor and no model. The first sentinel has the highest id of the vocabulary
and each further one the id below, as in the published T5 vocabularies.
"""

from __future__ import annotations

from collections.abc import Iterable

import tokenizers
from tokenizers import processors

from regard.data.corpus import train_tokenizer
from regard.data.corpus.vocabulary import SizeError
from regard.text import Tokenizer

__all__ = ["COUNT", "sentinels_of", "train_with_sentinels"]

COUNT = 100  # as many as T5 has
PAD = "<pad>"


def train_with_sentinels(
    texts: Iterable[str], *, size: int, lowercase: bool, minimum: int, max_length: int | None
) -> Tokenizer:
    """Byte-level BPE of `size` entries, in which padding and the sentinels are counted; an end follows each text."""
    more = COUNT + 1
    try:
        plain = train_tokenizer(
            texts, kind="bpe", size=max(size - more, 1), lowercase=lowercase, minimum=minimum, max_length=max_length
        )
    except SizeError as error:
        raise SizeError(
            f"{error}. In vocabulary.vocab_size, {size:,}, there are {more} more: padding, sentinels", error.size + more
        ) from None
    # They are put behind all others, so that what the library trained stays as it is.
    pipeline = tokenizers.Tokenizer.from_str(plain.files()["tokenizer.json"].decode())
    pipeline.add_special_tokens([PAD, *(_name(number) for number in reversed(range(COUNT)))])
    assert plain.eos is not None
    end = plain.token(plain.eos)
    template = processors.TemplateProcessing(
        single=["$A", end], pair=["$A", end, "$B", end], special_tokens=[(end, plain.eos)]
    )
    pipeline.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return Tokenizer(pipeline, names={"pad": PAD, "eos": end, "unknown": end}, max_length=max_length)


def sentinels_of(tokenizer: Tokenizer) -> list[int]:
    """The ids of a vocabulary's sentinels, from the first on; there may be none."""
    vocabulary = tokenizer.vocabulary
    found: list[int] = []
    while (name := _name(len(found))) in vocabulary:
        found.append(vocabulary[name])
    return found


def _name(number: int) -> str:
    return f"<extra_id_{number}>"
