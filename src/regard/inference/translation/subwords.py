"""Subword tokenizers of source and target: byte-level BPE trained on the pairs, or those of a published translator.

Texts are encoded with a leading space, so that a word has the same pieces at the start of a sentence as inside it.
Byte-level BPE is lossless, so decoded text needs no detokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path

import tokenizers

from regard.data.corpus.vocabulary import SizeError, train_tokenizer
from regard.data.translation_pairs import TranslationPair
from regard.errors import InputError
from regard.text import Tokenizer
from regard.text.marian import MarianTokenizer, Side

BEGIN, PAD = "<|begin|>", "<|pad|>"
SIDES: tuple[Side, Side] = ("source", "target")
MIN_VOCAB_SIZE = 260


@dataclass(frozen=True, eq=False)
class Subwords:
    """The tokenizers of source and target; the same one if they are joint.

    A source is encoded with the `source_prefix` before it and the `source_suffix`, by default the end token, after it;
    a target begins with the `target_prefix` and ends with the end token.
    """

    source: Tokenizer
    target: Tokenizer
    _: KW_ONLY
    source_prefix: tuple[int, ...] = ()
    source_suffix: tuple[int, ...] | None = None
    target_prefix: tuple[int, ...] = ()

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
        """The padding id of targets."""
        return _role(self.target, "pad")

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts to translate, with an end token."""
        suffix = (_role(self.source, "eos"),) if self.source_suffix is None else self.source_suffix
        return [[*self.source_prefix, *ids, *suffix] for ids in _ids(self.source, texts)]

    def unknown_characters(self, text: str) -> list[str]:
        """The characters of a source, or else its words, that the source vocabulary does not have.

        Byte-level BPE reads any character, but one that is in none of its tokens is only bytes.
        """
        tokenizer = self.source
        if tokenizer.unk_token_id is None or tokenizer.unk_token_id == tokenizer.eos_token_id:
            return [character for character in text if not (character.isspace() or character in self._characters)]
        if tokenizer.unk_token_id not in _ids(tokenizer, [text])[0]:
            return []
        parts = [*dict.fromkeys("".join(text.split())), *text.split(), text]
        return [part for part, ids in zip(parts, _ids(tokenizer, parts), strict=True) if tokenizer.unk_token_id in ids]

    @cached_property
    def _characters(self) -> frozenset[str]:
        tokens = (self.source.decode([token], skip_special_tokens=False) for token in range(self.source.size))
        return frozenset("".join(tokens)) - {"\ufffd"}  # which stands for a part of a character

    def text_positions(self, source: Sequence[int]) -> slice:
        """Where the text is in the ids of a source, without prefix and suffix."""
        suffix = 1 if self.source_suffix is None else len(self.source_suffix)
        return slice(len(self.source_prefix), len(source) - suffix)

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of translations, with an end token."""
        return [[*self.target_prefix, *ids, self.end] for ids in _ids(self.target, texts)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a translation's ids."""
        return self.target.decode(ids).strip()

    def files(self) -> dict[str, bytes]:
        """The files of a folder that `open` can read, by name."""
        if self.joint or isinstance(self.target, MarianTokenizer):
            return self.target.files()
        return {
            f"{side}/{name}": data
            for side, tokenizer in zip(SIDES, (self.source, self.target), strict=True)
            for name, data in tokenizer.files().items()
        }

    @classmethod
    def open(cls, folder: Path) -> Subwords:
        """Read the files of a folder."""
        if (folder / "source.spm").is_file():
            return cls(*(MarianTokenizer.open_side(folder, side) for side in SIDES))
        if Tokenizer.exists(folder):
            joint = Tokenizer.open(folder)
            subwords = cls(joint, joint)
        else:
            subwords = cls(*(Tokenizer.open(folder / side) for side in SIDES))
        for tokenizer in (subwords.source, subwords.target):
            for role in ("bos", "eos", "pad"):
                _role(tokenizer, role)
        return subwords


def train_subwords(pairs: Sequence[TranslationPair], *, size: int, joint: bool, exact: bool = True) -> Subwords:
    """Train byte-level BPE with `size` entries, for both sides together or for each.

    If the text has fewer pieces, InputError, or fewer entries unless the size is to be `exact`.
    """
    if joint:
        both = _train_bpe([text for pair in pairs for text in pair], size, exact)
        return Subwords(both, both)
    sides = ([pair.source for pair in pairs], [pair.target for pair in pairs])
    return Subwords(*(_train_bpe(texts, size, exact) for texts in sides))


def word_indices(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """For each piece the index of its word, from 0; words are separated by spaces."""
    return [max(len(tokenizer.decode(ids[: end + 1]).split()) - 1, 0) for end in range(len(ids))]


def _train_bpe(texts: Sequence[str], size: int, exact: bool) -> Tokenizer:
    if size < MIN_VOCAB_SIZE:
        raise InputError(
            f"vocabulary.vocab_size is {size}; expected at least {MIN_VOCAB_SIZE}: all bytes and the special tokens"
        )
    try:
        plain = train_tokenizer((f" {text}" for text in texts), kind="bpe", size=size - 2, exact=exact)
    except SizeError as error:
        raise InputError(
            f"vocabulary.vocab_size is {size:,}, but this text supports {error.size + 2:,} (pieces that occur at least "
            f"twice, and special tokens); set at most that many: --set vocabulary.vocab_size={error.size + 2}"
        ) from None
    # The special tokens come last, so that the trained ids do not change.
    pipeline = tokenizers.Tokenizer.from_str(plain.files()["tokenizer.json"].decode())
    pipeline.add_special_tokens([BEGIN, PAD])
    assert plain.eos_token_id is not None
    return Tokenizer(
        pipeline, special_tokens={"bos_token": BEGIN, "eos_token": plain.token(plain.eos_token_id), "pad_token": PAD}
    )


def _ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    ids, _ = tokenizer.ids_batch([f" {text.strip()}" for text in texts], add_special_tokens=False)
    return ids


def _role(tokenizer: Tokenizer, role: str) -> int:
    number: int | None = getattr(tokenizer, f"{role}_token_id")
    if number is None:
        raise InputError(f"the tokenizer has no {role} token, which translation needs; train it with `regard train`")
    return number
