"""The JSON files of a tokenizer folder: special tokens, options and maximum length.

Every value is validated before it is used, and no value selects code to run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from regard.errors import InputError
from regard.files.file_input import read_file
from regard.files.json_files import read_json

LIMIT = 256 << 20  # bytes of a vocabulary or tokenizer.json; the largest published ones have about 40 MB

# Roles of special tokens -> their keys in Hugging Face's files.
ROLES = {
    "pad": "pad_token",
    "mask": "mask_token",
    "cls": "cls_token",
    "sep": "sep_token",
    "unknown": "unk_token",
    "bos": "bos_token",
    "eos": "eos_token",
}

# Published folders often rely on the defaults of the tokenizer's class, which are these.
BERT = {"pad": "[PAD]", "mask": "[MASK]", "cls": "[CLS]", "sep": "[SEP]", "unknown": "[UNK]"}
GPT2 = {"unknown": "<|endoftext|>", "bos": "<|endoftext|>", "eos": "<|endoftext|>"}
T5 = {"pad": "<pad>", "unknown": "<unk>", "eos": "</s>"}
ROBERTA = T5 | {"mask": "<mask>", "cls": "<s>", "sep": "</s>", "bos": "<s>"}

# The first of these tokens that is in the vocabulary determines the family.
FAMILIES = {"[CLS]": BERT, "<mask>": ROBERTA, "<|endoftext|>": GPT2, "<pad>": T5}


@dataclass(frozen=True)
class TokenizerConfig:
    """The contents of a folder's JSON files; `kind` is the model family in lower case, or empty."""

    folder: Path
    values: Mapping[str, Any]
    names: Mapping[str, Any]
    kind: str

    @classmethod
    def open(cls, folder: Path) -> TokenizerConfig:
        """Read the folder's JSON files. Each may be missing; an invalid one is an error."""
        values = read_object(folder / "tokenizer_config.json")
        names = read_object(folder / "special_tokens_map.json") | values
        family = read_object(folder / "config.json").get("model_type") or values.get("tokenizer_class") or ""
        return cls(folder, values, names, str(family).removesuffix("Fast").removesuffix("Tokenizer").lower())

    def flag(self, key: str) -> bool | None:
        """A Boolean option of tokenizer_config.json, or None if it is missing."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise InputError(f"{self._file}: {key} should be true or false, not {value!r}")
        return value

    @property
    def max_length(self) -> int | None:
        """model_max_length, or None for the huge number that published folders use for "no limit"."""
        value = self.values.get("model_max_length")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(f"{self._file}: model_max_length should be a number, not {value!r}")
        return int(value) if 1 <= value < 1e9 else None

    @property
    def inputs(self) -> tuple[str, ...]:
        """model_input_names, the inputs that transformers passes to the model; empty if missing."""
        value = self.values.get("model_input_names") or []
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise InputError(f"{self._file}: model_input_names should be a list of strings, not {value!r}")
        return tuple(value)

    def tokens(self, vocabulary: Collection[str]) -> dict[str, AddedToken]:
        """The special tokens by role, if they are in the vocabulary; null in the files means none."""
        defaults = next((family for mark, family in FAMILIES.items() if mark in vocabulary), {})
        tokens = {role: self._token(self.names.get(key, defaults.get(role))) for role, key in ROLES.items()}
        return {role: token for role, token in tokens.items() if token is not None and token.content in vocabulary}

    @property
    def added(self) -> dict[str, tuple[int, AddedToken]]:
        """Tokens added to the vocabulary after its training, with their ids, ordered by id."""
        old = read_object(self.folder / "added_tokens.json")
        entries: list[tuple[object, object]] = [(number, token) for token, number in old.items()]
        new = self.values.get("added_tokens_decoder") or {}
        entries += new.items() if isinstance(new, dict) else [(None, new)]
        result = {}
        for number, value in entries:
            token = self._token(value)
            if token is None or not str(number).isdecimal() or len(str(number)) > 9:
                raise InputError(f"{self.folder}: expected an added token with its id, got {value!r} with {number!r}")
            result[token.content] = (int(str(number)), token)
        return dict(sorted(result.items(), key=lambda item: item[1][0]))

    @property
    def _file(self) -> Path:
        return self.folder / "tokenizer_config.json"

    def _token(self, value: object) -> AddedToken | None:
        if value is None:
            return None
        if isinstance(value, str):
            return AddedToken(value, normalized=False, special=True)
        if not isinstance(value, dict) or not isinstance(value.get("content"), str):
            raise InputError(f"{self.folder}: a token is a string or an object with 'content', not {value!r}")
        flags = {"normalized": False, "special": True}
        flags |= {key: value[key] for key in ("single_word", "lstrip", "rstrip", *flags) if key in value}
        if not all(isinstance(flag, bool) for flag in flags.values()):
            raise InputError(f"{self.folder}: the flags of {value['content']!r} should be true or false: {flags}")
        return AddedToken(value["content"], **flags)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, or an empty one if the file does not exist."""
    return read_json(path) if path.is_file() else {}


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with line breaks converted to "\\n"."""
    try:
        data = read_file(path, limit=LIMIT)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: not UTF-8 text ({error.reason}); save it as UTF-8") from error
