"""The tokenizer: converts text to token ids with character offsets, and ids to text.

It does not pad and creates no tensors. `tokenizer_folder` reads the files of a folder. A tokenizer is immutable, so
threads may share it.
"""

from __future__ import annotations

import copy
import difflib
import json
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import models, normalizers

from regard.errors import InputError, check_choice
from regard.files.disk import finish_save, replace_folder
from regard.files.gguf_file import find_gguf, read_gguf
from regard.text import guard
from regard.text.chat_template import Message, render_chat
from regard.text.gguf_tokenizer import read_gguf_tokenizer
from regard.text.reading import ReadingCount
from regard.text.tokenizer_folder import SPECIAL_TOKENS, has_tokenizer, read_tokenizer, read_vocabulary, refusing
from regard.text.word_cache import WordCache

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")  # that `Tokenizer.files` may contain
# Files of a previous tokenizer that transformers would still read.
STALE_FILES = {"special_tokens_map.json", "added_tokens.json", "chat_template.jinja"}
SURROGATE = re.compile("[\ud800-\udfff]")
NUMBERED = re.compile("<0x([0-9A-Fa-f]{2})>")
LONE = re.compile("[\udc80-\udcff]")  # how `surrogateescape` represents an undecodable byte
PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))  # bytes that represent themselves
CHUNK = 128  # texts whose ids are converted at once
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Encoding:
    """The tokens of one text or one pair of texts. Every list has one entry per token.

    `offsets` are character positions in the original text and `words` are word indices; in a pair, both start from 0
    in each text. Special tokens have (0, 0) and None. `special_tokens_mask` marks the tokens that the tokenizer added,
    not a "[SEP]" that the text itself contains. `num_truncated` is the number of tokens removed by truncation.
    """

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    words: list[int | None]
    segments: list[int]
    special_tokens_mask: list[bool]
    num_truncated: int

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class TokenIds:
    """The token ids of several texts in one array, with the length of each text and the tokens truncated from it."""

    ids: NDArray[np.int32]
    lengths: NDArray[np.int64]
    num_truncated: NDArray[np.int64]

    @staticmethod
    def from_lists(rows: Sequence[Sequence[int]]) -> TokenIds:
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        ids = np.empty(int(lengths.sum()), dtype=np.int32)
        ends, start = np.cumsum(lengths), 0
        for first in range(0, len(rows), CHUNK):  # in parts, between which other threads can run
            end = int(ends[min(first + CHUNK, len(rows)) - 1])
            part = chain.from_iterable(rows[first : first + CHUNK])
            ids[start:end] = np.fromiter(part, dtype=np.int32, count=end - start)
            start = end
        return TokenIds(ids, lengths, np.zeros_like(lengths))

    def __len__(self) -> int:
        return len(self.lengths)

    def extend(self, other: TokenIds) -> TokenIds:
        """These texts, and then those of the other."""
        if not len(self):
            return other
        pairs = ((self.ids, other.ids), (self.lengths, other.lengths), (self.num_truncated, other.num_truncated))
        return TokenIds(*(np.concatenate(pair) for pair in pairs))  # type: ignore[arg-type]

    def select(self, indices: NDArray[np.int64]) -> TokenIds:
        """Some of the texts, in the order of the indices."""
        lengths = self.lengths[indices]
        starts = (np.cumsum(self.lengths) - self.lengths)[indices]
        shifts = starts - (np.cumsum(lengths) - lengths)
        positions = np.arange(int(lengths.sum())) + np.repeat(shifts, lengths)
        return TokenIds(self.ids[positions], lengths, self.num_truncated[indices])


class Tokenizer:
    """A pipeline of the `tokenizers` library with its special tokens and limits.

    `special_tokens` maps roles such as `cls_token` to tokens; `cls_token_id` is then the id, or None. `max_length` is
    the value stated in the folder; texts are truncated only if `encode` is called with a length. `model_input_names`
    are the inputs that transformers passes to the model. `chat_template` is the Jinja template of a chat model. The
    tokenizer takes ownership of the pipeline.
    """

    pad_token_id: int | None
    mask_token_id: int | None
    cls_token_id: int | None
    sep_token_id: int | None
    unk_token_id: int | None
    bos_token_id: int | None
    eos_token_id: int | None

    def __init__(
        self,
        pipeline: tokenizers.Tokenizer,
        *,
        special_tokens: Mapping[str, str],
        max_length: int | None = None,
        model_input_names: Sequence[str] = ("input_ids", "attention_mask"),
        chat_template: str | None = None,
        truncation_side: Literal["left", "right"] = "right",
    ) -> None:
        self.max_length, self.chat_template, self.truncation_side = max_length, chat_template, truncation_side
        self._rows: int | None = None  # of the model's embedding, if the vocabulary has more entries
        self._reading: ReadingCount | None = None
        self._pipeline = pipeline
        self._special_tokens = dict(special_tokens)
        self._inputs = list(model_input_names)
        pipeline.no_truncation()
        pipeline.no_padding()
        for role in special_tokens:
            check_choice("special token", role, SPECIAL_TOKENS)
        for role in SPECIAL_TOKENS:
            setattr(self, f"{role}_id", self.id(special_tokens[role]) if role in special_tokens else None)

    @classmethod
    def open(cls, folder: Path, *, rows: int | None = None, plain: bool = False) -> Tokenizer:
        """Read a folder's tokenizer.json, vocab.txt, vocab.json + merges.txt, SentencePiece model or GGUF file.

        No code is run and nothing is fetched. Of a Marian folder this is the tokenizer of the source language.
        `rows` is the number of embeddings of the model; texts with ids beyond it raise InputError. `plain` is that of
        `read_tokenizer`.
        """
        finish_save(folder)
        if (Path(folder) / "source.spm").is_file():
            from regard.text.marian import MarianTokenizer

            return MarianTokenizer.open_side(Path(folder), "source", rows=rows)
        gguf = find_gguf(folder)
        if gguf is None:
            pipeline, settings = read_tokenizer(Path(folder), plain=plain)
        else:
            pipeline, settings = read_gguf_tokenizer(read_gguf(gguf))
        tokenizer = cls(pipeline, **settings)
        if rows is not None and tokenizer.size > rows:
            tokenizer._rows = rows
        return tokenizer

    @classmethod
    def from_vocabulary(cls, path: Path) -> Tokenizer:
        """BERT's tokenizer with the WordPiece vocabulary in a file: one token per line, whose number is its id."""
        pipeline, settings = read_vocabulary(Path(path))
        return cls(pipeline, **settings)

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether the folder has tokenizer files, which may still be invalid, or is a GGUF file."""
        return has_tokenizer(Path(folder)) or find_gguf(folder) is not None

    def counting(self, reading: ReadingCount) -> Tokenizer:
        """This tokenizer, which reports the texts that it encodes; both share their files and caches."""
        _ = self._word_cache
        counting = copy.copy(self)
        counting._reading = reading
        return counting

    def lowercased(self) -> Tokenizer:
        """A tokenizer that turns texts into lower case first; this one if one of its normalizers is that alone."""
        before = self._pipeline.normalizer
        parts: list[Any] = [] if before is None else [before]
        if isinstance(before, normalizers.Sequence):
            parts = [before[index] for index in range(len(before))]
        if any(isinstance(part, normalizers.Lowercase) for part in parts):
            return self
        lowercased = copy.copy(self)
        for name in ("_word_cache", "vocabulary", "size"):
            lowercased.__dict__.pop(name, None)
        lowercased._pipeline = tokenizers.Tokenizer.from_str(self._pipeline.to_str())
        lowercased._pipeline.normalizer = normalizers.Sequence([normalizers.Lowercase(), *parts])
        return lowercased

    def encode(
        self, text: str, pair: str | None = None, *, add_special_tokens: bool = True, max_length: int | None = None
    ) -> Encoding:
        """Encode a text or pair without padding, truncated to `max_length` tokens (the longer text of a pair first)."""
        return self.encode_batch(
            [text if pair is None else (text, pair)], add_special_tokens=add_special_tokens, max_length=max_length
        )[0]

    def encode_batch(
        self, texts: Sequence[str | tuple[str, str]], *, add_special_tokens: bool = True, max_length: int | None = None
    ) -> list[Encoding]:
        """Encode texts or pairs in parallel."""
        encoded = self._encode("encode_batch", texts, add_special_tokens)
        rows = [encoding(item, max_length, self.truncation_side) for item in encoded]
        self._report_lists(texts, [row.ids for row in rows], [row.num_truncated for row in rows])
        return rows

    def ids_batch(
        self, texts: Sequence[str | tuple[str, str]], *, add_special_tokens: bool = True, max_length: int | None = None
    ) -> tuple[list[list[int]], list[int]]:
        """Only the ids, and the number of tokens truncated from each text; faster than `encode_batch`."""
        encoded = self._encode("encode_batch_fast", texts, add_special_tokens)
        ids = [without(item.ids, cuts(item, max_length, self.truncation_side)) for item in encoded]
        truncated = [len(item) - len(row) for item, row in zip(encoded, ids, strict=True)]
        self._report_lists(texts, ids, truncated)
        return ids, truncated

    def ids_and_segments(
        self, texts: Sequence[str | tuple[str, str]], *, max_length: int | None = None, keep_second: bool = False
    ) -> list[tuple[list[int], list[int], int]]:
        """The ids and segments of each text or pair, and the number of tokens truncated; faster than `encode_batch`."""
        rows = []
        for item in self._encode("encode_batch_fast", texts, True):
            removed = cuts(item, max_length, self.truncation_side, keep_second=keep_second)
            ids = without(item.ids, removed)
            rows.append((ids, without(item.type_ids, removed), len(item) - len(ids)))
        self._report_lists(texts, [ids for ids, _, _ in rows], [truncated for _, _, truncated in rows])
        return rows

    def encode_ids(self, texts: Sequence[str], *, max_length: int | None = None) -> TokenIds:
        """Encode texts into one array of ids, truncated to `max_length` tokens each."""
        words = self._word_cache if max_length is None or self.truncation_side == "right" else None
        if words is not None and (max_length is None or max_length >= len(words.prefix) + len(words.suffix)):
            inputs = _inputs(texts)
            if all(isinstance(text, str) for text in inputs):
                with refusing("the tokenizer failed on a text"):
                    found = TokenIds(*words.encode(inputs, max_length))  # type: ignore[arg-type]
                if self._rows is None or found.ids.max(initial=0) < self._rows:
                    self._report(texts, found)
                    return found
        encoded = self._encode("encode_batch_fast", texts, True)
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        rows = [item.ids for item in encoded]
        truncated = np.zeros_like(lengths)
        if max_length is not None:
            for index in np.flatnonzero(lengths > max_length):
                rows[index] = without(rows[index], cuts(encoded[index], max_length, self.truncation_side))
                truncated[index] = lengths[index] - len(rows[index])
        tokens = replace(TokenIds.from_lists(rows), num_truncated=truncated)
        self._report(texts, tokens)
        return tokens

    def _report_lists(self, texts: Sequence[str | tuple[str, str]], ids: list[list[int]], truncated: list[int]) -> None:
        if self._reading is not None:
            self._report(texts, replace(TokenIds.from_lists(ids), num_truncated=np.array(truncated, dtype=np.int64)))

    def _report(self, texts: Sequence[str | tuple[str, str]], tokens: TokenIds) -> None:
        if self._reading is not None:
            self.count(self._reading, texts, tokens)

    def count(self, reading: ReadingCount, texts: Sequence[str | tuple[str, str]], tokens: TokenIds) -> None:
        """Add encoded texts to a count of what the model cannot read; special tokens are not part of a text."""
        lengths, unknown = tokens.lengths, self.is_unknown(tokens.ids)
        num_unknown = np.zeros_like(lengths)
        if unknown.any():
            rows = np.repeat(np.arange(len(lengths)), lengths)
            special = [self.id(token) for role, token in self._special_tokens.items() if role != "unk_token"]
            num_unknown = np.bincount(rows[unknown], minlength=len(lengths))
            lengths = lengths - np.bincount(rows[np.isin(tokens.ids, special)], minlength=len(lengths))
        reading.add(texts, num_unknown, lengths, tokens.num_truncated)

    def is_unknown(self, ids: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether each token stands for text that the vocabulary does not have; byte-level tokenizers have none."""
        if self.unk_token_id is None or self.unk_token_id == self.eos_token_id:
            return np.zeros(len(ids), dtype=bool)
        unknown: NDArray[np.bool_] = ids == self.unk_token_id
        return unknown

    @cached_property
    def _word_cache(self) -> WordCache | None:
        return WordCache.of(self._pipeline)

    def _encode(self, method: str, texts: Sequence[object], add_special_tokens: bool) -> list[tokenizers.Encoding]:
        """Encode with a method of the pipeline. Raises InputError for ids without an embedding."""
        inputs = _inputs(texts)
        with refusing("the tokenizer failed on a text"):
            encoded = self._run(method, inputs, add_special_tokens)
        if self._rows is None:
            return encoded
        # Checked here because a check on the GPU would synchronize.
        beyond = sorted({number for item in encoded for number in item.ids if number >= self._rows})
        if beyond:
            named = ", ".join(f"{self.token(number)!r} ({number})" for number in beyond[:8])
            raise InputError(
                f"the tokenizer gives ids that the model has no vectors for: {named}{' and more' * (len(beyond) > 8)}; "
                f"the model's vocabulary has {self._rows} entries. Use the tokenizer that belongs to the model"
            )
        return encoded

    def _run(self, method: str, inputs: Sequence[object], add_special_tokens: bool) -> list[tokenizers.Encoding]:
        """Encode with a method of the pipeline."""
        encoded: list[tokenizers.Encoding] = getattr(self._pipeline, method)(
            inputs, add_special_tokens=add_special_tokens
        )
        return encoded

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The text of some ids; ids beyond the vocabulary (possible with a padded output layer) are skipped."""
        numbers = [operator.index(number) for number in ids]
        if numbers and (min(numbers) < 0 or max(numbers) >= 2**32):
            raise InputError(f"a token id is a whole number from 0, got {min(numbers)} to {max(numbers)}")
        with refusing("the tokenizer failed on ids"):
            return self._pipeline.decode(numbers, skip_special_tokens=skip_special_tokens)

    def token(self, id: int) -> str:
        """The token of an id, as the vocabulary spells it."""
        number = operator.index(id)
        token = self._pipeline.id_to_token(number) if 0 <= number < 2**32 else None
        if token is None:
            raise InputError(f"no token has the id {number}; ids run from 0 to {self.size - 1}")
        return token

    def id(self, token: str) -> int:
        """The id of a token, as the vocabulary spells it; the error for an unknown token suggests similar ones."""
        number = self._pipeline.token_to_id(_clean(token))
        if number is None:
            near = difflib.get_close_matches(token, self.vocabulary, n=3) if len(token) < 50 else []
            hint = f"did you mean {', '.join(map(repr, near))}?" if near else "encode() splits a text into tokens"
            raise InputError(f"{token!r} is not a token of this vocabulary of {len(self.vocabulary)}; {hint}")
        return number

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """Every token and its id, ordered by id. The dictionary is shared: do not modify it."""
        return dict(sorted(self._pipeline.get_vocab(with_added_tokens=True).items(), key=lambda entry: entry[1]))

    @property
    def special_token_ids(self) -> set[int]:
        """The ids of tokens that are not text, such as [CLS] and <|endoftext|>."""
        added = self._pipeline.get_added_tokens_decoder().items()
        return {number for number, token in added if token.special} | {
            self.id(t) for t in self._special_tokens.values()
        }

    @cached_property
    def size(self) -> int:
        """The highest id plus one: the number of embeddings that a model needs."""
        return max(self._pipeline.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def apply_chat_template(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """The prompt for messages with "role" and "content", as transformers' method of this name returns it."""
        if self.chat_template is None:
            raise InputError(
                "this model has no chat template, so it is not a chat model; use one that was tuned for instructions, "
                "such as HuggingFaceTB/SmolLM2-135M-Instruct, or continue a prompt without --chat"
            )
        return render_chat(
            self.chat_template,
            messages,
            special_tokens=self._special_tokens,
            add_generation_prompt=add_generation_prompt,
        )

    @cached_property
    def marks_continuation(self) -> bool:
        """Whether the vocabulary marks tokens that continue a word, as WordPiece does with ##."""
        return bool(getattr(self._pipeline.model, "continuing_subword_prefix", None))

    @property
    def has_segments(self) -> bool:
        """Whether transformers passes the segments of this tokenizer to the model."""
        return "token_type_ids" in self._inputs

    def files(self, *, max_length: int | None = None) -> dict[str, bytes]:
        """The files of a folder with this tokenizer, by name; WordPiece also has vocab.txt.

        `max_length` is that of the model, if the files should state another one than this tokenizer does.
        """
        # With this class transformers uses tokenizer.json unchanged; BertTokenizer and others rebuild parts of it.
        settings: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": self._inputs}
        max_length = max_length or self.max_length
        if max_length is not None:
            settings["model_max_length"] = max_length
        settings |= {role: self._special_tokens.get(role) for role in SPECIAL_TOKENS}
        if isinstance(normalizer := self._pipeline.normalizer, normalizers.BertNormalizer):
            settings["do_lower_case"] = normalizer.lowercase
            settings["strip_accents"] = normalizer.strip_accents
            settings["tokenize_chinese_chars"] = normalizer.handle_chinese_chars
        if self.truncation_side != "right":
            settings["truncation_side"] = self.truncation_side
        if self.chat_template is not None:
            settings["chat_template"] = self.chat_template
        texts = {
            "tokenizer.json": self._pipeline.to_str(pretty=True),
            "tokenizer_config.json": json.dumps(settings, indent=2, ensure_ascii=False) + "\n",
        }
        if isinstance(self._pipeline.model, models.WordPiece):
            ids = self._pipeline.get_vocab(with_added_tokens=False)
            tokens = sorted(ids, key=lambda token: ids[token])
            # The id is the line number, so gaps in the ids and line breaks in tokens cannot be represented.
            if all(ids[token] == line and "\n" not in token for line, token in enumerate(tokens)):
                texts["vocab.txt"] = "".join(f"{token}\n" for token in tokens)
        files = {name: text.encode("utf-8") for name, text in texts.items()}
        guard.trust_tokenizer_file(files["tokenizer.json"])
        return files

    def save(self, folder: Path) -> None:
        """Write `files` into a folder atomically; transformers can load them too.

        Files with the special tokens of a previous tokenizer are removed; everything else in the folder stays.
        """
        with replace_folder(folder, remove=STALE_FILES) as staging:
            for name, data in self.files().items():
                (staging / name).write_bytes(data)

    def __repr__(self) -> str:
        kind = type(self._pipeline.model).__name__
        return f"Tokenizer({kind}, size={self.size}, max_length={self.max_length})"


def encoding(encoded: tokenizers.Encoding, length: int | None, side: str = "right") -> Encoding:
    """Convert an encoding of the `tokenizers` library, truncated to `length` tokens on one side."""
    removed = cuts(encoded, length, side)
    ids = without(encoded.ids, removed)
    return Encoding(
        ids=ids,
        tokens=without(encoded.tokens, removed),
        offsets=without(encoded.offsets, removed),
        words=without(encoded.word_ids, removed),
        segments=without(encoded.type_ids, removed),
        special_tokens_mask=without(list(map(bool, encoded.special_tokens_mask)), removed),
        num_truncated=len(encoded) - len(ids),
    )


def cuts(
    encoded: tokenizers.Encoding, length: int | None, side: str = "right", *, keep_second: bool = False
) -> list[slice]:
    """The slices to delete from the lists, last slice first, so that `length` tokens remain. `side`: left or right.
    With `keep_second`, only the first text of a pair loses tokens.

    The library's own truncation is a setting of the pipeline, which threads share, so it is not used.
    """
    if length is not None and length < 1:
        raise InputError(f"max_length should be at least 1, or None for no limit, got {length}")
    if length is None or len(encoded) <= length:
        return []
    owners = encoded.sequence_ids
    first, second = owners.count(0), owners.count(1)
    room = length - (len(owners) - first - second)
    if room < 0:
        raise InputError(f"max_length={length} has no room for the {length - room} special tokens; give a larger one")
    parts, remaining = [], only_first(second, room) if keep_second else longest_first(first, second, room)
    for owner, old, new in zip((0, 1), (first, second), remaining, strict=True):
        if new < old:
            start = owners.index(owner)
            parts.append(slice(start, start + old - new) if side == "left" else slice(start + new, start + old))
    return parts[::-1]


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """The lengths of two texts that are truncated, the longer one first, to `room` tokens together."""
    short, long = sorted((first, second))
    short = min(short, room // 2)
    long = min(long, room - short)
    return (long, short) if first > second else (short, long)


def only_first(second: int, room: int) -> tuple[int, int]:
    """The lengths of two texts of which only the first is truncated, to `room` tokens together."""
    if second >= room:
        raise InputError(f"the second text has {second} tokens, and the model reads {room} of both; shorten it")
    return room - second, second


def without(values: list[Item], parts: list[slice]) -> list[Item]:
    """Delete the slices from the list in place; the last slice comes first."""
    for part in parts:
        del values[part]
    return values


def _inputs(texts: Iterable[object]) -> list[str | tuple[str, str]]:
    if isinstance(texts, str):
        raise InputError("expected a sequence of texts, got one str; put it in a list")
    return [_input(text, index) for index, text in enumerate(texts)]


def _input(text: object, index: int) -> str | tuple[str, str]:
    if isinstance(text, str):
        return _clean(text)
    if isinstance(text, (tuple, list)) and len(text) == 2 and all(isinstance(part, str) for part in text):
        return _clean(text[0]), _clean(text[1])
    raise InputError(f"expected a str or a pair of them, got {type(text).__name__} at position {index}")


def _clean(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot represent, by U+FFFD; offsets stay the same."""
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)


def readable_token(token: str) -> str:
    """The text of a vocabulary token; a byte of an incomplete character is written as \\xC3.

    Tokens that are not byte-level are returned unchanged.
    """
    data = readable_bytes(token)
    if data is None:
        return token
    return LONE.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02X}", data.decode("utf-8", "surrogateescape"))


def readable_bytes(token: str) -> bytes | None:
    """The bytes that a vocabulary token stands for; None if it is not byte-level."""
    characters = _bytes()
    if match := NUMBERED.fullmatch(token):
        return bytes.fromhex(match[1])
    if all(character in characters for character in token):
        return bytes(characters[character] for character in token)
    return None


@cache
def _bytes() -> dict[str, int]:
    """GPT-2's character for every byte: the byte itself if it is printable, otherwise characters from U+0100 on."""
    others = (byte for byte in range(256) if byte not in PRINTED)
    return {chr(byte): byte for byte in PRINTED} | {chr(0x100 + index): byte for index, byte in enumerate(others)}
