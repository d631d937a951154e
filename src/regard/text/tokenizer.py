"""The tokenizer: text in, ids with their place in the text out, and back.

Does not pad, makes no tensor, and leaves the reading of a folder to `vocabulary` and the cutting to `encoding`. A
tokenizer does not change after its making, so threads may share one.
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

__all__ = ["TOKENIZER_FILES", "Encoding", "Tokenizer"]

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")  # what `Tokenizer.files` may name

SURROGATE = re.compile("[\ud800-\udfff]")

# What another tokenizer may have left in a folder, and transformers would still read.
REPLACED = {"special_tokens_map.json", "added_tokens.json"}


class Tokenizer:
    """A pipeline of the `tokenizers` library with the names and limits that belong to it.

    `names` gives the special tokens by role (pad, mask, cls, sep, unknown, bos, eos); the attributes of those names are
    their ids, None where there is none. `max_length` is what the folder states: nothing is cut unless `encode` is told
    a length. `inputs` is what transformers should feed the model. `rows` is how many ids the model has vectors for,
    where the vocabulary has more: a text with others is refused. The pipeline belongs to the tokenizer from then on.
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
                raise InputError(f"{role!r} is no role of a special token; choices: {', '.join(ROLES)}")
        for role in ROLES:
            setattr(self, role, self.id(names[role]) if role in names else None)

    @classmethod
    def open(cls, folder: Path, *, rows: int | None = None) -> Tokenizer:
        """Read a folder's tokenizer.json, vocab.txt, or vocab.json + merges.txt; nothing is run or fetched.

        `rows` is how many ids the model has vectors for.
        """
        finish_save(folder)
        found = read(Path(folder))
        beyond = rows if rows is not None and found.largest >= rows else None
        return cls(found.pipeline, names=found.names, max_length=found.max_length, inputs=found.inputs, rows=beyond)

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether the folder has tokenizer files: `open` then returns a tokenizer or says what is wrong with them."""
        return exists(Path(folder))

    def encode(
        self, text: str, pair: str | None = None, *, special: bool = True, max_length: int | None = None
    ) -> Encoding:
        """Encode one text or pair, without padding, cut to `max_length` tokens (of a pair the longer text first)."""
        return self.encode_batch([text if pair is None else (text, pair)], special=special, max_length=max_length)[0]

    def encode_batch(
        self, texts: Sequence[str | tuple[str, str]], *, special: bool = True, max_length: int | None = None
    ) -> list[Encoding]:
        """Encode many texts or pairs in parallel, each as `encode` would."""
        inputs = _inputs(texts)
        with refusing("the tokenizer failed on a text"):
            found = self._pipeline.encode_batch(inputs, add_special_tokens=special)
        self._refuse_beyond(found)
        return [encoding(one, max_length) for one in found]

    def ids_batch(
        self, texts: Sequence[str | tuple[str, str]], *, special: bool = True, max_length: int | None = None
    ) -> tuple[list[list[int]], list[int]]:
        """The ids alone and the number of tokens cut from each text: what `encode_batch` gives, in less time."""
        inputs = _inputs(texts)
        with refusing("the tokenizer failed on a text"):
            found = self._pipeline.encode_batch_fast(inputs, add_special_tokens=special)
        self._refuse_beyond(found)
        gone = [cuts(one, max_length) for one in found]
        ids = [without(one.ids, parts) for one, parts in zip(found, gone, strict=True)]
        return ids, [len(one) - len(kept) for one, kept in zip(found, ids, strict=True)]

    def _refuse_beyond(self, found: Sequence[tokenizers.Encoding]) -> None:
        """Here, and not where vectors are looked up: that may be on a GPU, which would have to be waited for."""
        if self._rows is None:
            return
        beyond = sorted({number for one in found for number in one.ids if number >= self._rows})
        if beyond:
            named = ", ".join(f"{self.token(number)!r} ({number})" for number in beyond[:8])
            raise InputError(
                f"the tokenizer gives ids that the model has no vectors for: {named}{' and more' * (len(beyond) > 8)}; "
                f"the model's vocabulary has {self._rows} entries. Use the tokenizer that belongs to the model"
            )

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """The text of some ids; ids past the vocabulary (a padded output layer can choose one) are left out."""
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
        """The id of a token, as the vocabulary spells it; for an unknown one the error gives the nearest."""
        number = self._pipeline.token_to_id(_clean(token))
        if number is None:
            near = difflib.get_close_matches(token, self.vocabulary, n=3) if len(token) < 50 else []
            hint = f"did you mean {', '.join(map(repr, near))}?" if near else "encode() splits a text into tokens"
            raise InputError(f"{token!r} is not a token of this vocabulary of {len(self.vocabulary)}; {hint}")
        return number

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """Every token and its id, in the order of the ids; shared, so not to be changed."""
        return dict(sorted(self._pipeline.get_vocab(with_added_tokens=True).items(), key=lambda entry: entry[1]))

    @property
    def size(self) -> int:
        """One more than the highest id: the rows that an embedding needs."""
        return max(self.vocabulary.values(), default=-1) + 1

    def files(self) -> dict[str, bytes]:
        """The files of a folder that holds this tokenizer; for WordPiece vocab.txt is among them."""
        # For this class transformers takes tokenizer.json as it is; BertTokenizer and its like rebuild parts of it.
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
            # An id is a line number there, so ids with gaps and tokens with line ends cannot be written that way.
            if all(ids[token] == line and "\n" not in token for line, token in enumerate(tokens)):
                texts["vocab.txt"] = "".join(f"{token}\n" for token in tokens)
        files = {name: text.encode("utf-8") for name, text in texts.items()}
        guard.trust_tokenizer_file(files["tokenizer.json"])
        return files

    def save(self, folder: Path) -> None:
        """Write `files` into a folder, all at once or not at all, so that transformers too finds this tokenizer there.

        The files in which an earlier tokenizer kept its special tokens are taken away; all else in the folder stays.
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
    # The library takes texts and pairs in one list, though its type hints do not say so.
    return cast("list[str]", [_input(text, place) for place, text in enumerate(texts)])


def _input(text: object, place: int) -> str | tuple[str, str]:
    if isinstance(text, str):
        return _clean(text)
    if isinstance(text, (tuple, list)) and len(text) == 2 and all(isinstance(part, str) for part in text):
        return _clean(text[0]), _clean(text[1])
    raise InputError(f"expected a str or a pair of them, got {type(text).__name__} at position {place}")


def _clean(text: str) -> str:
    """Lone surrogates, which UTF-8 and so the Rust library cannot hold, become U+FFFD; every other place stays."""
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)
