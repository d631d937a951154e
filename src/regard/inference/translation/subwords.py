"""Subwords of both languages: byte-level BPE trained on the pairs, one for both or one for each.

Knows ids and words of a text. Knows no tensor and no model. A text is encoded with a space before it, so that a word is
the same pieces at the start of a sentence as inside; byte-level pieces give every text back, so that what is decoded
needs no detokeniser.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers

from regard.data.corpus.vocabulary import train_tokenizer
from regard.data.translation_pairs import TranslationPair
from regard.errors import InputError
from regard.text import Tokenizer

__all__ = ["SIDES", "Subwords", "train_subwords", "word_indices"]

BEGIN, PAD = "<|begin|>", "<|pad|>"
SIDES = ("source", "target")


@dataclass(frozen=True, eq=False)
class Subwords:
    """The tokenizers of source and target; where they are joint, the same one."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source is self.target

    @property
    def begin(self) -> int:
        return _role(self.target, "bos")

    @property
    def end(self) -> int:
        return _role(self.target, "eos")

    @property
    def padding(self) -> int:
        """Of a target."""
        return _role(self.target, "pad")

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts to translate, with an end token."""
        return _ids(self.source, texts)

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of translations, with an end token."""
        return _ids(self.target, texts)

    def decode(self, ids: Iterable[int]) -> str:
        """What the ids of a translation say."""
        return self.target.decode(ids).strip()

    def files(self) -> dict[str, bytes]:
        """The files of a folder from which `open` reads the same."""
        if self.joint:
            return self.target.files()
        return {
            f"{side}/{name}": data
            for side, tokenizer in zip(SIDES, (self.source, self.target), strict=True)
            for name, data in tokenizer.files().items()
        }

    @classmethod
    def open(cls, folder: Path) -> Subwords:
        """What `files` wrote."""
        if Tokenizer.exists(folder):
            joint = Tokenizer.open(folder)
            found = cls(joint, joint)
        else:
            found = cls(*(Tokenizer.open(folder / side) for side in SIDES))
        for tokenizer in (found.source, found.target):
            for role in ("bos", "eos", "pad"):
                _role(tokenizer, role)
        return found


def train_subwords(pairs: Sequence[TranslationPair], *, size: int, joint: bool) -> Subwords:
    """Byte-level BPE of `size` entries, or of as many for each side."""
    if joint:
        both = _trained([text for pair in pairs for text in pair], size)
        return Subwords(both, both)
    return Subwords(_trained([pair.source for pair in pairs], size), _trained([pair.target for pair in pairs], size))


def word_indices(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """For each piece the number of its word, from 0, where spaces part words."""
    return [max(len(tokenizer.decode(ids[: end + 1]).split()) - 1, 0) for end in range(len(ids))]


def _trained(texts: Sequence[str], size: int) -> Tokenizer:
    if size < 260:
        raise InputError(
            f"vocabulary.vocab_size is {size}; expected at least 260: all bytes, and what marks begin and end"
        )
    try:
        plain = train_tokenizer((f" {text}" for text in texts), kind="bpe", size=size - 2)
    except InputError as error:
        raise InputError(f"{error}. The size is vocabulary.vocab_size, in which 2 more are counted") from None
    # The two are put behind all others, so that what the library trained stays as it is.
    pipeline = tokenizers.Tokenizer.from_str(plain.files()["tokenizer.json"].decode())
    pipeline.add_special_tokens([BEGIN, PAD])
    assert plain.eos is not None
    return Tokenizer(pipeline, names={"bos": BEGIN, "eos": plain.token(plain.eos), "pad": PAD})


def _ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    end = _role(tokenizer, "eos")
    ids, _ = tokenizer.ids_batch([f" {text.strip()}" for text in texts], special=False)
    return [[*one, end] for one in ids]


def _role(tokenizer: Tokenizer, role: str) -> int:
    number: int | None = getattr(tokenizer, role)
    if number is None:
        raise InputError(f"the tokenizer has no {role} token, which translation needs; train it with `regard train`")
    return number
