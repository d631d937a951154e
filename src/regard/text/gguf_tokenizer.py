"""Builds the tokenizer in a GGUF file: byte-level BPE ("gpt2") or SentencePiece BPE with scores ("llama")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from regard.errors import InputError, suggest
from regard.files.gguf_file import GgufFile
from regard.text.chat_template import MAX_TEMPLATE
from regard.text.sentencepiece import SPACE, merges_of_scores
from regard.text.tokenizer_folder import refusing

PREFIX = "tokenizer.ggml."
TOKEN_IDS = {  # our roles of special tokens and the keys of their ids
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
    "mask_token": "mask_token_id",
}
CONTROL, USER_DEFINED = 3, 4  # types of tokens that are recognized in a text
MAX_TOKEN = 1024  # characters of a token; SentencePiece merges are derived from all its prefixes
V = TypeVar("V")

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Words, up to {digits} digits and punctuation of the tokenizers after GPT-4's.
GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class PreTokenizer:
    """How a text is split before byte-level BPE: the patterns, each applied to the pieces of the one before.

    `whole_words` keeps a piece that is a token, whatever the merges say. `add_bos` applies if the file does not say.
    """

    patterns: tuple[str, ...]
    nfc: bool = False
    whole_words: bool = False
    add_bos: bool = False


PRE_TOKENIZERS = {
    "gpt-2": PreTokenizer((GPT2,)),
    "smollm": PreTokenizer((r"\p{N}", GPT2)),
    "llama-bpe": PreTokenizer((GPT4.format(digits="{1,3}"),), whole_words=True, add_bos=True),
    "qwen2": PreTokenizer((GPT4.format(digits=""),), nfc=True),
    "tekken": PreTokenizer((TEKKEN,), whole_words=True, add_bos=True),
}
# Names of the same pre-tokenizers in files of other models.
PRE_TOKENIZERS |= {name: PRE_TOKENIZERS["gpt-2"] for name in ("phi-2", "olmo", "mpt", "gigachat")}
PRE_TOKENIZERS |= {name: PRE_TOKENIZERS["smollm"] for name in ("starcoder", "refact", "command-r", "codeshell")}
PRE_TOKENIZERS |= {name: PRE_TOKENIZERS["llama-bpe"] for name in ("llama3", "llama-v3")}
PRE_TOKENIZERS |= {name: PRE_TOKENIZERS["qwen2"] for name in ("deepseek-r1-qwen", "megrez")}


def read_gguf_tokenizer(file: GgufFile) -> tuple[Tokenizer, dict[str, Any]]:
    """Return the pipeline and the keyword arguments for `regard.text.Tokenizer`."""
    values = _Metadata(file)
    tokens = values.value("tokens", list, "a list of texts")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if not tokens or len(vocabulary) < len(tokens) or max(map(len, tokens)) > MAX_TOKEN:
        raise values.error("tokens", f"unique tokens of at most {MAX_TOKEN} characters", f"{len(tokens)} others")
    kind = values.value("model", str, "a text")
    types = values.numbers("token_type", len(tokens)) if PREFIX + "token_type" in file.metadata else []
    special = {role: values.token(key, tokens) for role, key in TOKEN_IDS.items() if PREFIX + key in file.metadata}
    with refusing(f"{file.path}: its tokenizer cannot be used"):
        if kind == "gpt2":
            pipeline, add_bos = _byte_level(values, vocabulary)
        elif kind == "llama":
            pipeline, add_bos = _sentence_piece(values, vocabulary, special.get("unk_token"))
        else:
            raise values.error("model", "'gpt2' or 'llama'", repr(kind[:80]))
        added = {token: False for token, one in zip(tokens, types, strict=False) if one == USER_DEFINED}
        added |= {token: True for token, one in zip(tokens, types, strict=False) if one == CONTROL}
        added |= dict.fromkeys(special.values(), True) if kind == "gpt2" else {}
        for control in (False, True):
            chosen = [
                AddedToken(token, normalized=False, special=control) for token in added if added[token] == control
            ]
            (pipeline.add_special_tokens if control else pipeline.add_tokens)(chosen)
        pipeline.post_processor = _post_processor(values, vocabulary, special, add_bos=add_bos, trim=kind != "gpt2")
    length = file.metadata.get(f"{file.architecture}.context_length")
    template = file.metadata.get("tokenizer.chat_template")
    if template is not None and (not isinstance(template, str) or len(template) > MAX_TEMPLATE):
        raise InputError(
            f"{file.path}: tokenizer.chat_template should be a text of at most {MAX_TEMPLATE:,} characters"
        )
    return pipeline, {
        "special_tokens": special,
        "max_length": length if isinstance(length, int) else None,
        "chat_template": template,
    }


class _Metadata:
    """The values of the tokenizer, with their types checked."""

    def __init__(self, file: GgufFile) -> None:
        self.path, self.values = file.path, file.metadata

    def value(self, key: str, kind: type[V], expected: str, default: V | None = None) -> V:
        value = self.values.get(PREFIX + key, default)
        if not isinstance(value, kind):
            raise self.error(key, expected, _kind(value))
        return value

    def numbers(self, key: str, count: int) -> list[float]:
        value = self.values.get(PREFIX + key)
        if not isinstance(value, np.ndarray) or len(value) != count:
            raise self.error(key, f"{count:,} numbers, one for each token", _kind(value))
        numbers: list[float] = value.tolist()
        return numbers

    def token(self, key: str, tokens: list[str]) -> str:
        value = self.values.get(PREFIX + key)
        if not isinstance(value, int) or not 0 <= value < len(tokens):
            raise self.error(key, f"a token id below {len(tokens):,}", repr(value)[:80])
        return tokens[value]

    def error(self, key: str, expected: str, found: str) -> InputError:
        return InputError(f"{self.path}: {PREFIX}{key}: expected {expected}, found {found}; convert the model again")


def _byte_level(values: _Metadata, vocabulary: Mapping[str, int]) -> tuple[Tokenizer, bool]:
    name = values.value("pre", str, "a text")
    if name not in PRE_TOKENIZERS:
        raise InputError(
            f"{values.path}: {PREFIX}pre is {name[:80]!r}, a way to split texts that Regard does not know; "
            f"{suggest(name[:80], PRE_TOKENIZERS)}"
        )
    pre = PRE_TOKENIZERS[name]
    merges = []
    for line in values.value("merges", list, "a list of texts"):
        middle = line.find(" ", 1)
        if middle < 0 or middle == len(line) - 1:
            raise values.error("merges", "two pieces with a space between them", repr(line[:80]))
        merges.append((line[:middle], line[middle + 1 :]))
    pipeline = Tokenizer(models.BPE(dict(vocabulary), merges, ignore_merges=pre.whole_words))
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.patterns]
    pipeline.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    if pre.nfc:
        pipeline.normalizer = normalizers.NFC()
    pipeline.decoder = decoders.ByteLevel()
    return pipeline, pre.add_bos


def _sentence_piece(values: _Metadata, vocabulary: Mapping[str, int], unknown: str | None) -> tuple[Tokenizer, bool]:
    merges = merges_of_scores(vocabulary, values.numbers("scores", len(vocabulary)))
    pipeline = Tokenizer(models.BPE(dict(vocabulary), merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    prefix = values.value("add_space_prefix", bool, "true or false", True)
    spaces = normalizers.Replace(" ", SPACE)
    pipeline.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if prefix else spaces
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    pipeline.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return pipeline, True


def _post_processor(
    values: _Metadata, vocabulary: Mapping[str, int], special: Mapping[str, str], *, add_bos: bool, trim: bool
) -> Any:
    """What is added to a text: the begin and end tokens that the file asks for."""
    begin = special.get("bos_token") if values.value("add_bos_token", bool, "true or false", add_bos) else None
    end = special.get("eos_token") if values.value("add_eos_token", bool, "true or false", False) else None
    before, after = [begin] if begin else [], [end] if end else []
    offsets = [] if trim else [processors.ByteLevel(trim_offsets=False)]
    if not before and not after:
        return processors.Sequence(offsets)
    template = processors.TemplateProcessing(
        single=[*before, "$A", *after],
        pair=[*before, "$A", *after, *(f"{token}:1" for token in before), "$B:1", *(f"{token}:1" for token in after)],
        special_tokens=[(token, vocabulary[token]) for token in {*before, *after}],
    )
    return processors.Sequence([*offsets, template])


def _kind(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__} ({str(value)[:60]})"
