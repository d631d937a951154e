"""The tokenizer: converts text to token ids with character offsets, and ids to text.

It does not pad and creates no tensors. `vocabulary` reads the files of a folder, `encoding` truncates. A tokenizer is
immutable, so threads may share it.
"""

from __future__ import annotations

import difflib
import json
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import cast

import tokenizers
from tokenizers import models, normalizers

from regard.errors import InputError
from regard.files.disk import finish_save, replace_folder
from regard.text import guard
from regard.text.encoding import Encoding, cuts, encoding, without
from regard.text.tokenizer_config import ROLES
from regard.text.vocabulary import exists, read, refusing

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")  # that `Tokenizer.files` may contain

SURROGATE = re.compile("[\ud800-\udfff]")

# Files of a previous tokenizer that transformers would still read.
REPLACED = {"special_tokens_map.json", "added_tokens.json"}


class Tokenizer:
    """A pipeline of the `tokenizers` library with its special tokens and limits.

    `names` maps roles (pad, mask, cls, sep, unknown, bos, eos) to special tokens; the attributes of the same names are
    their ids, or None. `max_length` is the value stated in the folder; texts are truncated only if `encode` is called
    with a length. `inputs` are the model inputs for transformers (`model_input_names`). `rows` is the number of
    embeddings of the model if the vocabulary has more entries; texts with ids beyond it raise InputError. The
    tokenizer takes ownership of the pipeline.
    """

    pad: int | None
    mask: int | None
    cls: int | None
    sep: int | None
    unknown: int | None
    bos: int | None
    eos: int | None

    def __init__(
        self,
        pipeline: tokenizers.Tokenizer,
        *,
        names: Mapping[str, str],
        max_length: int | None = None,
        inputs: Sequence[str] = ("input_ids", "attention_mask"),
        rows: int | None = None,
    ) -> None:
        self.max_length = max_length
        self._rows = rows
        self._pipeline = pipeline
        self._names = dict(names)
        self._inputs = list(inputs)
        pipeline.no_truncation()
        pipeline.no_padding()
        for role in names:
            if role not in ROLES:
                raise InputError(f"{role!r} is not a role of a special token; choices: {', '.join(ROLES)}")
        for role in ROLES:
            setattr(self, role, self.id(names[role]) if role in names else None)

    @classmethod
    def open(cls, folder: Path, *, rows: int | None = None) -> Tokenizer:
        """Read a folder's tokenizer.json, vocab.txt, or vocab.json + merges.txt; no code is run and nothing is fetched.

        `rows` is the number of embeddings of the model.
        """
        finish_save(folder)
        parts = read(Path(folder))
        limit = rows if rows is not None and parts.largest >= rows else None
        return cls(parts.pipeline, names=parts.names, max_length=parts.max_length, inputs=parts.inputs, rows=limit)

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether the folder has tokenizer files, which may still be invalid."""
        return exists(Path(folder))

    def encode(
        self, text: str, pair: str | None = None, *, special: bool = True, max_length: int | None = None
    ) -> Encoding:
        """Encode a text or pair without padding, truncated to `max_length` tokens (the longer text of a pair first)."""
        return self.encode_batch([text if pair is None else (text, pair)], special=special, max_length=max_length)[0]

    def encode_batch(
        self, texts: Sequence[str | tuple[str, str]], *, special: bool = True, max_length: int | None = None
    ) -> list[Encoding]:
        """Encode texts or pairs in parallel."""
        inputs = _inputs(texts)
        with refusing("the tokenizer failed on a text"):
            encoded = self._pipeline.encode_batch(inputs, add_special_tokens=special)
        self._refuse_beyond(encoded)
        return [encoding(item, max_length) for item in encoded]

    def ids_batch(
        self, texts: Sequence[str | tuple[str, str]], *, special: bool = True, max_length: int | None = None
    ) -> tuple[list[list[int]], list[int]]:
        """Only the ids, and the number of tokens truncated from each text; faster than `encode_batch`."""
        inputs = _inputs(texts)
        with refusing("the tokenizer failed on a text"):
            encoded = self._pipeline.encode_batch_fast(inputs, add_special_tokens=special)
        self._refuse_beyond(encoded)
        ids = [without(item.ids, cuts(item, max_length)) for item in encoded]
        return ids, [len(item) - len(row) for item, row in zip(encoded, ids, strict=True)]

    def _refuse_beyond(self, encoded: Sequence[tokenizers.Encoding]) -> None:
        """Raise InputError for ids without an embedding; checked here because a check on the GPU would synchronize."""
        if self._rows is None:
            return
        beyond = sorted({number for item in encoded for number in item.ids if number >= self._rows})
        if beyond:
            named = ", ".join(f"{self.token(number)!r} ({number})" for number in beyond[:8])
            raise InputError(
                f"the tokenizer gives ids that the model has no vectors for: {named}{' and more' * (len(beyond) > 8)}; "
                f"the model's vocabulary has {self._rows} entries. Use the tokenizer that belongs to the model"
            )

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """The text of some ids; ids beyond the vocabulary (possible with a padded output layer) are skipped."""
        numbers = [operator.index(number) for number in ids]
        if numbers and (min(numbers) < 0 or max(numbers) >= 2**32):
            raise InputError(f"a token id is a whole number from 0, got {min(numbers)} to {max(numbers)}")
        with refusing("the tokenizer failed on ids"):
            return self._pipeline.decode(numbers, skip_special_tokens=not special)

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
    def size(self) -> int:
        """The highest id plus one: the number of embeddings that a model needs."""
        return max(self.vocabulary.values(), default=-1) + 1

    def files(self) -> dict[str, bytes]:
        """The files of a folder with this tokenizer, by name; WordPiece also has vocab.txt."""
        # With this class transformers uses tokenizer.json unchanged; BertTokenizer and others rebuild parts of it.
        settings: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": self._inputs}
        if self.max_length is not None:
            settings["model_max_length"] = self.max_length
        settings |= {key: self._names.get(role) for role, key in ROLES.items()}
        if isinstance(normalizer := self._pipeline.normalizer, normalizers.BertNormalizer):
            settings["do_lower_case"] = normalizer.lowercase
            settings["strip_accents"] = normalizer.strip_accents
            settings["tokenize_chinese_chars"] = normalizer.handle_chinese_chars
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
        with replace_folder(folder, remove=REPLACED) as staging:
            for name, data in self.files().items():
                (staging / name).write_bytes(data)

    def __repr__(self) -> str:
        kind = type(self._pipeline.model).__name__
        return f"Tokenizer({kind}, size={self.size}, max_length={self.max_length})"


def _inputs(texts: Iterable[object]) -> list[str]:
    if isinstance(texts, str):
        raise InputError("expected a sequence of texts, got one str; put it in a list")
    # The library accepts texts and pairs in one list, although its type hints do not allow it.
    return cast("list[str]", [_input(text, index) for index, text in enumerate(texts)])


def _input(text: object, index: int) -> str | tuple[str, str]:
    if isinstance(text, str):
        return _clean(text)
    if isinstance(text, (tuple, list)) and len(text) == 2 and all(isinstance(part, str) for part in text):
        return _clean(text[0]), _clean(text[1])
    raise InputError(f"expected a str or a pair of them, got {type(text).__name__} at position {index}")


def _clean(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot represent, by U+FFFD; offsets stay the same."""
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)
